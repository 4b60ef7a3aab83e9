/* Trial builds: compiling in a child process what the compiler might die on.
 *
 * LLVM-based drivers abort the process on code they cannot select or allocate registers for. So a
 * risky program is first built by a child, which is this same executable started as
 * `TRIAL_COMMAND --trial-build`: it reads the job from its standard input, builds, creates the
 * kernels and stores each binary (or the compiler's refusal) in the disk cache, where the parent
 * finds it. A program the child died on is remembered as a failed build, with the reason.
 */
#ifndef OINFER_CL_TRIAL_H
#define OINFER_CL_TRIAL_H

/* Programs that set device_options.trial_command call this first in main: it returns -1 when the
 * arguments do not ask for a trial build, else the exit status. No thread may run yet. */
int trial_build_main(int argc, char **argv);

#endif
