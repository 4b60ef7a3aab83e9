/* Rehearsals: what a model needs compiled is compiled by a child first.
 *
 * Drivers of CPUs compile in the process, some of it only at a kernel's first launch, and their
 * compiler's memory (more than the weights of a small model) stays with the process. So the first
 * time that a model comes to such a device, a child (device_options.trial_command) opens it
 * without most of its weights, runs the self-tests and each plan once, so that verdicts and the
 * driver's own cache are there, and ends. It leaves another behind that stores the programs'
 * binaries, for which such drivers compile once more; later starts then need no compiler at all.
 * A child that fails costs only time: what it did not do is done here.
 */
#ifndef OINFER_MODEL_REHEARSAL_H
#define OINFER_MODEL_REHEARSAL_H

#include "engine/engine.h"

/* Has a child rehearse the model on this device, unless one did or none is needed. Waits, telling
 * o->progress that nothing is loaded yet. False: that callback cancelled. The device's thread. */
bool rehearse(struct engine *g, const struct model_file *f, const struct load_options *o);

/* After the load: when it had to build programs although there was a rehearsal before it (the cache
 * lost them, or its second child did not finish), the next load has another. */
void rehearsal_loaded(struct engine *g, uint32_t n_built);

/* The child: -1 when the arguments do not ask for it, else the exit status (trial.h). */
int rehearsal_main(int argc, char **argv);

#endif
