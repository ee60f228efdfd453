/* SPDX-License-Identifier: Apache-2.0 */
/* pawl/mx_error.hpp - dmlc::Error, unless dmlc-core's own header was included before. */
#ifndef PAWL_MX_ERROR_HPP
#define PAWL_MX_ERROR_HPP

#include <stdexcept>
#include <string>

#ifndef DMLC_LOGGING_H_
#define DMLC_LOGGING_H_
#define PAWL_MX_LOGGING	/* ours: <pawl/compat/dmlc/logging.h> has the macros */

namespace dmlc {

struct Error : public std::runtime_error {
	explicit Error(const std::string &s) : std::runtime_error(s) {}
};

}
#endif

#endif
