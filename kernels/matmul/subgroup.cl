/* matmul by sub-groups of cl_khr_subgroups: see matmul/subgroup.h. */
#ifdef CAP_SUBGROUPS
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#define SUBGROUP_LANES           get_sub_group_size()
#define SUBGROUP_LANE            get_sub_group_local_id()
#define SUBGROUP_INDEX           get_sub_group_id()
#define SUBGROUP_COUNT           get_num_sub_groups()
#define SUBGROUP_BROADCAST(v, i) sub_group_broadcast(v, i)
#include "matmul/subgroup.h"
#endif
