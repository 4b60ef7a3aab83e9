/* norm, quantize and swiglu as kernels of their own: activations.inc. */
#include "cpu/activations.inc"

KERNEL(1) void norm_cpu(__global uchar *x, ulong x_off, __global uchar *weight, ulong weight_off,
                        __global uchar *bias, ulong bias_off, __global uchar *y, ulong y_off,
                        struct norm_params p)
{
    norm_cpu_step((const __global float *)(x + x_off),
                  (const __global float *)(weight + weight_off),
                  (const __global float *)(bias + bias_off), y + y_off, p, get_group_id(0),
                  get_num_groups(0));
}

KERNEL(1) void quantize_cpu(__global uchar *x, ulong x_off, __global uchar *y, ulong y_off,
                            struct quantize_params p)
{
    quantize_cpu_step((const __global float *)(x + x_off), y + y_off, p, get_group_id(0),
                  get_num_groups(0));
}

KERNEL(1) void swiglu_cpu(__global uchar *gate_up, ulong gate_up_off, __global uchar *y,
                          ulong y_off, struct swiglu_params p)
{
    swiglu_cpu_step((const __global float *)(gate_up + gate_up_off), y + y_off, p, get_group_id(0),
                get_num_groups(0));
}
