/* The inside of a device list: what device_open needs of it. */
#ifndef OINFER_CL_LIST_H
#define OINFER_CL_LIST_H

#include "engine/cl/cl.h"
#include "engine/cl/device.h"

/* The handles of device `index`; NULL for `host`. Root devices live as long as the process. */
void list__ids(const struct device_list *l, uint32_t index, cl_platform_id *platform,
               cl_device_id *id);
/* The order of the list, as qsort wants it: usable ones first, then by kind, then the stronger,
 * then as the loader gave them. */
int list__order(const struct device_info *a, double a_power, const struct device_info *b,
                double b_power);

#endif
