/* nvidia/conv2d_f32.cl with its registers bounded. */
#include "nvidia/capped.h"
#include "nvidia/conv2d_f32.cl"
