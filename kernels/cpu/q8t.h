/* ACT_Q8T: int8 activations in tiles of ACT_TILE tokens, for the tile kernels of CPU devices.
 * Macros only: the host includes this file too.
 *
 * [ceil(n_tokens / ACT_TILE)][k / 32] records of Q8T_DWORDS rows of ACT_TILE dwords; column t of a
 * record is token t of the tile (those past the end hold anything):
 *   rows 0..7  quad i: the 4 int8 of columns 32 b + 4 i ..
 *   row 8      float d: x = q * d, d = absmax / 127
 *   row 9      int: sum of the block's q
 *   row 10     int: sum of its first 16 q
 *   row 11     float: d times the sum of the block's q
 */
#ifndef CPU_Q8T_H
#define CPU_Q8T_H

#define Q8T_DWORDS 12
#define Q8T_D      (8 * ACT_TILE)
#define Q8T_SUM    (9 * ACT_TILE)
#define Q8T_SUM_16 (10 * ACT_TILE)
#define Q8T_D_SUM  (11 * ACT_TILE)

/* Dwords of a record, and of a tile of k columns (k: 64 bits wide). */
#define Q8T_RECORD  (Q8T_DWORDS * ACT_TILE)
#define Q8T_TILE(k) ((k) / 32 * Q8T_RECORD)

#endif
