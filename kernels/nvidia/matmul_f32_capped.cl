/* nvidia/matmul_f32.cl with its registers bounded. */
#include "nvidia/capped.h"
#include "nvidia/matmul_f32.cl"
