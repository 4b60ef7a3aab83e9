/* What a test program that has fake_cl.c linked in may ask of it. Any thread. */
#ifndef OINFER_TESTS_FAULT_FAKE_CL_H
#define OINFER_TESTS_FAULT_FAKE_CL_H

#include <stddef.h>

/* Replaces the rules (the text is that of OINFER_FAULT; "": none) and counts calls from 0 again. */
void fake_cl_rules(const char *text);
/* Calls since then, of all functions in calls.def together; those of one (its row, from 0); and how
 * many were made to fail. */
unsigned long fake_cl_calls(void);
unsigned long fake_cl_calls_of(int call);
unsigned long fake_cl_failed(void);
const char *fake_cl_name(int call); /* NULL after the last row */
/* From now on devices have that many bytes for buffers, pinned ones too, of which they keep a copy;
 * more is refused. 0: as the driver does. While there is no buffer. */
void fake_cl_memory(size_t n_bytes);
/* References to OpenCL objects of all kinds that are held now. */
long fake_cl_alive(void);

#endif
