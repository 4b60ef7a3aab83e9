/* Programs for compute capability 9.0a: instructions that NVIDIA's OpenCL compiler does not take
 * from source, but does from a binary, which is PTX text.
 *
 * A kernel writes such an instruction as a PTX comment with real operands ("//@wgmma.fence...;" in
 * inline assembly). After the build, the comments are uncovered in the binary's text, the target
 * becomes sm_90a, and the text is loaded as a program again. "//@groups N" asks for few enough
 * registers that a compute unit holds N groups (1 to 9) of each kernel.
 */
#ifndef OINFER_CL_SM90A_H
#define OINFER_CL_SM90A_H

#include "engine/base/strbuf.h"
#include "engine/cl/impl.h"

/* Whether a program text asks for this: it holds "//@". */
bool sm90a__wanted(const char *text);
/* Appends the rewritten PTX. False when the text does not target sm_90 or does not fit. */
bool sm90a__rewrite(const char *ptx, struct strbuf *out);
/* Replaces a built program by its sm_90a form; the old one is released either way. */
enum status sm90a__reload(struct device *d, const char *name, cl_program *program, struct err *e);

#endif
