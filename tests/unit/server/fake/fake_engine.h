/* An engine without devices, for tests of the server: deterministic, fast, and faulty on demand.
 *
 * It implements engine/engine.h over a byte vocabulary: token 3 + b is the byte b, 0 1 2 are
 * unknown, beginning and end. What it generates is written in the prompt: after "<script|" comes
 * the script, again and again, where $ ends the text; without a script the alphabet. Faults: a
 * prompt with ! gives ST_NUMERIC, one with ^ ST_DEVICE_LOST, one with ~ ST_DEVICE, one with `
 * ST_DEVICE every other time, one with 0x7F ST_DEVICE for ever (the device is dead and device_check
 * says so); one with the byte 7 hangs. The counters are atomics, read from any thread.
 */
#ifndef OINFER_TESTS_FAKE_ENGINE_H
#define OINFER_TESTS_FAKE_ENGINE_H

#include <stdatomic.h>
#include <stdint.h>

#define FAKE_BYTE(b) (3 + (b))
#define FAKE_SPACE   259
#define FAKE_VOCAB   260
#define FAKE_EOS     2
#define FAKE_BOS     1

struct fake_counts {
    atomic_uint files, engines, models, sessions; /* open now */
    atomic_uint steps, items, widest;             /* steps run; items in them; most in one step */
    atomic_uint profile_switches;
    atomic_uint operators; /* runs of operators that were completed */
    atomic_uint points;    /* of tunings */
};
extern struct fake_counts fake_counts;

/* Sleep of each step and of each of the ten parts of a load. */
extern atomic_uint fake_step_ms, fake_load_ms;
/* fake_step_ms and what the environment adds to it: of a step, a run of an operator, a point. */
unsigned fake_sleep_ms(void);
/* Makes model_load fail with ST_NO_DEVICE_MEMORY. */
extern atomic_bool fake_load_fails;
/* So many of the next calls of engine_open fail with ST_DEVICE_LOST. */
extern atomic_uint fake_failed_opens;

#endif
