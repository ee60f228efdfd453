/* SPDX-License-Identifier: Apache-2.0 */
/* dmlc/timer.h - seconds of a monotonic clock, since an arbitrary time. */
#ifndef PAWL_COMPAT_DMLC_TIMER_H
#define PAWL_COMPAT_DMLC_TIMER_H

#include <chrono>
#include <pawl/compat/dmlc/base.h>

namespace dmlc {

inline double GetTime()
{
	return std::chrono::duration<double>(
		std::chrono::steady_clock::now().time_since_epoch()).count();
}

}

#endif
