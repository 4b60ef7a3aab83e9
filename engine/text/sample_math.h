/* Exponential and logarithm that give the same bits on every machine: plain double arithmetic,
 * no library. Relative error under 1e-14. Pure.
 */
#ifndef OINFER_TEXT_SAMPLE_MATH_H
#define OINFER_TEXT_SAMPLE_MATH_H

/* e^x; 0 for x under -700. x at most 700. */
double sample_exp(double x);
/* Natural logarithm of x, positive and normal. */
double sample_log(double x);

#endif
