/* What every probe shares: the protocol between the kernel and engine/cl/caps.c.
 *
 * A probe is a kernel `probe(in, out)` on n items: `in` holds PROBE_IN_BYTES bytes, byte i being
 * (i * 37 + 11) mod 256; `out` is zeroed and item i writes PROBE_OK to out[i] when every result it
 * saw was right. Words from PROBE_SCRATCH on are scratch. What a probe computes depends on `in`, so
 * that no compiler can work it out beforehand.
 */
#ifndef PROBE_COMMON_H
#define PROBE_COMMON_H

#define PROBE_OK       0x600DCAFEu
#define PROBE_BAD      0xBADu
#define PROBE_IN_BYTES 4096
#define PROBE_SCRATCH  65536
#define PROBE_WORDS    131072

#endif
