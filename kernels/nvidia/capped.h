/* Bounds the registers of kernels of nvidia/f32_tile.h to 128 an item, by loading as sm_90a: compilers
 * would rather take more than let a compute unit hold 512 items. Included before the kernel's file. */
#ifndef OINFER_KERNELS_CAPPED_H
#define OINFER_KERNELS_CAPPED_H

#if LWS == 256
#define ASK_GROUPS __asm__ volatile("//@groups 2")
#elif LWS == 128
#define ASK_GROUPS __asm__ volatile("//@groups 4")
#else
#define ASK_GROUPS __asm__ volatile("//@groups 8")
#endif

#endif
