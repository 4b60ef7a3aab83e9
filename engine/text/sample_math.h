/* Exponential and logarithm that give the same bits on every machine: plain double arithmetic,
 * no library. Relative error under 1e-14. Pure.
 */
#ifndef OINFER_TEXT_SAMPLE_MATH_H
#define OINFER_TEXT_SAMPLE_MATH_H

/* e^x; 0 for x under -700. x at most 700. */
double sample_exp(double x);
/* Each x becomes e^x, as by sample_exp. */
#define SAMPLE_EXP_BLOCK 256
void sample_exp_block(double x[SAMPLE_EXP_BLOCK]);
/* The same to a relative error of 3e-7; 0 for x under -87. x at most 88. */
void sample_expf_block(float x[SAMPLE_EXP_BLOCK]);
/* The sum, in an order of its own. */
double sample_sum_block(const double x[SAMPLE_EXP_BLOCK]);
double sample_sumf_block(const float x[SAMPLE_EXP_BLOCK]);
/* Natural logarithm of x, positive and normal. */
double sample_log(double x);

#endif
