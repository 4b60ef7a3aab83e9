/* Capabilities of a device, each proven by a probe. */
#ifndef OINFER_CL_CAPS_H
#define OINFER_CL_CAPS_H

#include "engine/cl/impl.h"

/* Fills d->caps: from the disk cache, or by probing: in a child, where compilers are better kept
 * out of this process, or here. */
enum status caps__find(struct device *d, struct err *e);
/* Runs the probes here and stores what they found. A probe that fails for whatever reason clears
 * its bit; an error is returned only when the device cannot run anything. */
enum status caps__probe(struct device *d, struct err *e);

#endif
