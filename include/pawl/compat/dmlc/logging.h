/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dmlc/logging.h - the part of dmlc-core's logging that users of an engine need: LOG() with
 * INFO, WARNING and ERROR prints to standard error; LOG(FATAL) and failed CHECKs throw
 * dmlc::Error.
 */
#ifndef PAWL_COMPAT_DMLC_LOGGING_H
#define PAWL_COMPAT_DMLC_LOGGING_H

#include <iostream>
#include <sstream>
#include <pawl/mx_error.hpp>

#ifdef PAWL_MX_LOGGING

namespace dmlc {

/* A line, which is printed when its statement ends. */
class LogMessage {
public:
	LogMessage(const char *file, int line) { out_ << file << ":" << line << ": "; }
	~LogMessage()
	{
		out_ << '\n';
		std::cerr << out_.str();
	}
	std::ostream &stream() { return out_; }

private:
	std::ostringstream out_;
};

class LogMessageFatal {
public:
	LogMessageFatal(const char *file, int line) { out_ << file << ":" << line << ": "; }
	~LogMessageFatal() noexcept(false) { throw Error(out_.str()); }
	std::ostream &stream() { return out_; }

private:
	std::ostringstream out_;
};

}

#define LOG_INFO ::dmlc::LogMessage(__FILE__, __LINE__)
#define LOG_WARNING LOG_INFO
#define LOG_ERROR LOG_INFO
#define LOG_FATAL ::dmlc::LogMessageFatal(__FILE__, __LINE__)
#define LOG(severity) LOG_##severity.stream()

#define CHECK(x) if (x) {} else LOG(FATAL) << "Check failed: " #x " "
#define CHECK_BINARY_OP(x, op, y) \
	if ((x) op (y)) {} else LOG(FATAL) << "Check failed: " #x " " #op " " #y " "
#define CHECK_EQ(x, y) CHECK_BINARY_OP(x, ==, y)
#define CHECK_NE(x, y) CHECK_BINARY_OP(x, !=, y)
#define CHECK_LT(x, y) CHECK_BINARY_OP(x, <, y)
#define CHECK_LE(x, y) CHECK_BINARY_OP(x, <=, y)
#define CHECK_GT(x, y) CHECK_BINARY_OP(x, >, y)
#define CHECK_GE(x, y) CHECK_BINARY_OP(x, >=, y)
#define CHECK_NOTNULL(x) \
	((x) == NULL ? LOG(FATAL) << "Check notnull: " #x " ", (x) : (x))

#endif

#endif
