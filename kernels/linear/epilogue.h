/* What every linear kernel does with a finished sum: bias, then store or add to the residual. */
#ifndef LINEAR_EPILOGUE_H
#define LINEAR_EPILOGUE_H

/* y[t][r] = sum + bias[r], or += it. LINEAR_SWIGLU needs two rows: see the layouts that have it. */
static void linear_finish(__global float *y, const __global float *bias, struct linear_params p,
                          uint t, uint r, float sum)
{
    __global float *out = y + (ulong)t * p.y_stride + r;
    if (p.has_bias)
        sum += bias[r];
    *out = p.epilogue == LINEAR_ADD ? *out + sum : sum;
}

#endif
