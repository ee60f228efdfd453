/* SPDX-License-Identifier: Apache-2.0 */
/* dmlc/omp.h - OpenMP's calls; without OpenMP, their single-threaded results. */
#ifndef PAWL_COMPAT_DMLC_OMP_H
#define PAWL_COMPAT_DMLC_OMP_H

#ifdef _OPENMP
#include <omp.h>
#else

inline int omp_get_thread_num() { return 0; }
inline int omp_get_num_threads() { return 1; }
inline int omp_get_max_threads() { return 1; }
inline int omp_get_num_procs() { return 1; }
inline void omp_set_num_threads(int) {}
inline int omp_in_parallel() { return 0; }

#endif

#endif
