// SPDX-License-Identifier: Apache-2.0
/* tools/pawl/slurp.c: files whose reads end early or fail, and what is no file. */
#include "util.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <tools/pawl/slurp.h>

/* These calls come here (tests/Makefile). */
ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);
int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);
int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

static u32 interrupted;		/* so many calls of open() fail with EINTR */
static size_t refused;		/* allocations of this size fail; 0: none do */
static bool stat_fails, stat_called;

int __wrap_open(const char *path, int flags, mode_t mode)
{
	if (interrupted) {
		interrupted--;
		errno = EINTR;
		return -1;
	}
	return __real_open(path, flags, mode);
}

int __wrap_fstat(int fd, struct stat *st)
{
	stat_called = true;
	if (!stat_fails)
		return __real_fstat(fd, st);
	errno = EIO;
	return -1;
}

void *__wrap_malloc(size_t n)
{
	return refused && n == refused ? NULL : __real_malloc(n);
}

static size_t piece;		/* most bytes of a call; 0: any number */
static u32 calls_left;		/* which succeed */
static int error;		/* of the others; 0: the file has ended */
static size_t room;		/* after the last call; 0: unknown */

ssize_t __wrap_read(int fd, void *p, size_t n)
{
	ssize_t got;

	if (!piece)
		return __real_read(fd, p, n);
	/* a program that is started meanwhile does not get it */
	MUST(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	if (!calls_left--) {
		errno = error;
		return error ? -1 : 0;
	}
	/* it reads no more than fits, also if the file grows meanwhile */
	MUST(!room || n == room);
	got = __real_read(fd, p, n < piece ? n : piece);
	MUST(got > 0);
	room = n - (size_t)got;
	return got;
}

static int slurp(const char *path, size_t bytes, u32 calls, int err, void **data, size_t *len,
		 char *text, size_t size)
{
	int rc;

	piece = bytes;
	room = 0;
	calls_left = calls;
	error = err;
	rc = file_slurp(path, 1000, data, len, text, size);
	piece = 0;
	return rc;
}

START_TEST(test_a_file_that_comes_in_pieces_is_read_whole)
{
	char *path = temp_path(), in[100], text[128];
	FILE *f = fopen(path, "w");
	size_t len, i;
	void *data;
	int fd;

	for (i = 0; i < sizeof(in); i++)
		in[i] = (char)i;
	MUST(f && fwrite(in, 1, sizeof(in), f) == sizeof(in) && !fclose(f));
	fd = next_fd();
	for (i = 1; i < 102; i += 10) {
		OK(slurp(path, i, 100, 0, &data, &len, text, sizeof(text)));
		ck_assert_uint_eq(len, sizeof(in));
		ck_assert(!memcmp(data, in, len));
		free(data);
	}
	ck_assert_int_eq(slurp(path, 30, 2, EIO, &data, &len, text, sizeof(text)), -EIO);
	ck_assert_msg(strstr(text, "offset 60: Input/output error") != NULL, "%s", text);
	ck_assert_int_eq(slurp(path, 30, 3, 0, &data, &len, text, sizeof(text)), -EIO);
	ck_assert_msg(strstr(text, "offset 90: the file shrank") != NULL, "%s", text);
	ck_assert_int_eq(slurp(path, 30, 0, ENXIO, &data, &len, NULL, 0), -ENXIO);
	ck_assert_int_eq(next_fd(), fd);
	unlink(path);
}
END_TEST

/* A FIFO without a writer is not waited for. */
START_TEST(test_what_is_no_file_of_at_most_so_many_bytes_is_refused)
{
	char *path = temp_path(), out[128];
	size_t len = 0;
	void *data;
	int fd = next_fd();

	MUST(!truncate(path, 1001));
	ck_assert_int_eq(file_slurp(path, 1000, &data, &len, out, sizeof(out)), -EFBIG);
	ck_assert_msg(strstr(out, ": 1001 bytes, more than the limit of 1000") != NULL, "%s", out);
	MUST(!truncate(path, 1000));
	OK(file_slurp(path, 1000, &data, &len, out, sizeof(out)));
	ck_assert_uint_eq(len, 1000);
	free(data);
	MUST(!truncate(path, 0));
	OK(file_slurp(path, 0, &data, &len, NULL, 0));
	ck_assert_uint_eq(len, 0);
	free(data);
	MUST(!unlink(path));
	ck_assert_int_eq(file_slurp(path, 1000, &data, &len, out, sizeof(out)), -ENOENT);
	ck_assert_msg(strstr(out, ": cannot open: No such file") != NULL, "%s", out);
	MUST(!mkfifo(path, 0600));
	ck_assert_int_eq(file_slurp(path, 1000, &data, &len, out, sizeof(out)), -EINVAL);
	ck_assert_msg(strstr(out, ": not a regular file") != NULL, "%s", out);
	unlink(path);
	ck_assert_int_eq(file_slurp("/", 1000, &data, &len, out, sizeof(out)), -EINVAL);
	/* A message has one line, whatever is in the name. */
	ck_assert_int_eq(file_slurp("/no\n\033\177 one", 1000, &data, &len, out, sizeof(out)),
			 -ENOENT);
	ck_assert_msg(strstr(out, "/no??? one: ") == out, "%s", out);
	ck_assert_int_eq(next_fd(), fd);
}
END_TEST

/* Bytes of names are shown, except for those that move the cursor; the code comes back. */
START_TEST(test_a_message_is_one_line_of_at_most_its_room)
{
	static const char odd[] = "a\001\037 !~\177\200\377\tz\n";
	char out[16] = "before";

	ck_assert_int_eq(file_err(out, sizeof(out), -EIO, "%s", odd), -EIO);
	ck_assert_str_eq(out, "a?? !~?\200\377?z?");
	ck_assert_int_eq(file_err(out, 4, -ENOENT, "%s %d", "ab", 12), -ENOENT);
	ck_assert_str_eq(out, "ab ");
	ck_assert_int_eq(file_err(out, 1, -EFBIG, "abc"), -EFBIG);
	ck_assert_str_eq(out, "");
	/* without room nothing is written, nor read */
	memcpy(out, "\n", 2);
	ck_assert_int_eq(file_err(out, 0, -EINVAL, "abc"), -EINVAL);
	ck_assert_str_eq(out, "\n");
	ck_assert_int_eq(file_err(NULL, 16, -EACCES, "abc"), -EACCES);
}
END_TEST

START_TEST(test_fields_of_16_32_and_64_bits)
{
	static const unsigned char p[] = { 0x81, 0x92, 0xa3, 0xb4, 0xc5, 0xd6, 0xe7, 0xf8 };

	ck_assert_uint_eq(get_le16(p), 0x9281);
	ck_assert_uint_eq(get_le32(p), 0xb4a39281);
	ck_assert_uint_eq(get_le64(p), 0xf8e7d6c5b4a39281);
}
END_TEST

/* An open that a signal interrupts is repeated; whatever else fails leaves no file open. */
START_TEST(test_calls_of_the_system_that_fail)
{
	char *path = temp_path(), out[128], want[128];
	int fd = next_fd(), rc;
	size_t len;
	void *data;

	MUST(!truncate(path, 777));
	interrupted = 2;
	OK(file_slurp(path, 1000, &data, &len, out, sizeof(out)));
	ck_assert(len == 777 && !interrupted);
	free(data);
	/* an old C library has another name for fstat() */
	if (stat_called) {
		stat_fails = true;
		rc = file_slurp(path, 1000, &data, &len, out, sizeof(out));
		stat_fails = false;
		ck_assert_int_eq(rc, -EIO);
		snprintf(want, sizeof(want), "%s: cannot stat: Input/output error", path);
		ck_assert_str_eq(out, want);
	}
	refused = 777;
	rc = file_slurp(path, 1000, &data, &len, out, sizeof(out));
	refused = 0;
	ck_assert_int_eq(rc, -ENOMEM);
	snprintf(want, sizeof(want), "%s: no memory for 777 bytes", path);
	ck_assert_str_eq(out, want);
	ck_assert_int_eq(next_fd(), fd);
	unlink(path);
}
END_TEST

/* A program may run without a standard input. */
START_TEST(test_a_file_may_have_the_number_0)
{
	char *path = temp_path(), out[128] = "";
	int in = dup(0), rc;
	size_t len = 0;
	void *data;

	MUST(in >= 0 && !truncate(path, 5) && !close(0));
	rc = file_slurp(path, 1000, &data, &len, out, sizeof(out));
	MUST(dup2(in, 0) == 0 && !close(in));
	ck_assert_msg(!rc, "%s", out);
	ck_assert_uint_eq(len, 5);
	free(data);
	unlink(path);
}
END_TEST

SUITE("slurp", test_calls_of_the_system_that_fail, test_a_file_may_have_the_number_0,
      test_a_message_is_one_line_of_at_most_its_room, test_fields_of_16_32_and_64_bits,
      test_a_file_that_comes_in_pieces_is_read_whole,
      test_what_is_no_file_of_at_most_so_many_bytes_is_refused)
