// SPDX-License-Identifier: Apache-2.0
/* The reader of digits.img reads the real file, and refuses every damaged copy of it. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../demo/images.h"
#include "../../tools/pawl/slurp.h"
#include "must.h"
#include "suite.h"

#ifndef PAWL_DATA_DIR
#define PAWL_DATA_DIR PAWL_SRCDIR "/demo/data"
#endif

static char path[4096];
static unsigned char *file;
static size_t file_len;
static char err[512];

static void setup(void)
{
	const char *dir = getenv("PAWL_DATA");
	void *data;

	snprintf(path, sizeof(path), "%s/digits.img", dir ? dir : PAWL_DATA_DIR);
	ck_assert_msg(!file_slurp(path, SIZE_MAX, &data, &file_len, err, sizeof(err)),
		      "%s", err);
	file = data;
}

static void teardown(void)
{
	free(file);
}

/* A copy that ends where the page ends, before one that must not be touched. */
static unsigned char *guarded(const void *data, size_t len, void **map, size_t *map_len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *p;

	*map_len = (len + page - 1) / page * page + page;
	p = mmap(NULL, *map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(p != MAP_FAILED);
	ck_assert(!mprotect(p + *map_len - page, page, PROT_NONE));
	*map = p;
	p += *map_len - page - len;
	memcpy(p, data, len);
	return p;
}

/* Refused, with a message that names the file and has `where` in it. */
static void refused(const unsigned char *data, size_t len, const char *where)
{
	struct image_set *set = NULL;
	int rc;

	err[0] = 0;
	rc = images_parse(data, len, "x.img", &set, err, sizeof(err));
	ck_assert_msg(rc < 0, "accepted: %s", where);
	ck_assert(!set);
	ck_assert_msg(!strncmp(err, "x.img: ", 7), "no file: %s", err);
	ck_assert_msg(strstr(err, where), "no '%s': %s", where, err);
}

static void put_le(unsigned char *p, uint32_t v, int bytes)
{
	for (; bytes--; v >>= 8)
		*p++ = (unsigned char)v;
}

/* The checksum made right again, so that the checks behind it are reached. */
static void sign(unsigned char *data, size_t len)
{
	uint32_t crc = 0xffffffffu;
	size_t i;
	int bit;

	for (i = 0; i < len - 4; i++) {
		crc ^= data[i];
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	put_le(data + len - 4, ~crc, 4);
}

START_TEST(real_file)
{
	struct image_set *set;
	uint32_t i, j, held = 0, of_class[10] = { 0 };
	float in[64];

	ck_assert_msg(!images_load(path, &set, err, sizeof(err)), "%s", err);
	ck_assert_uint_eq(set->count, 1797);
	ck_assert_uint_eq(set->held_out, 450);
	ck_assert_uint_eq(set->height, 8);
	ck_assert_uint_eq(set->width, 8);
	ck_assert_uint_eq(set->size, 64);
	ck_assert_uint_eq(set->max_value, 16);
	ck_assert_uint_eq(set->classes, 10);
	for (i = 0; i < set->count; i++) {
		of_class[set->label[i]]++;
		held += set->split[i];
		images_input(set, i, in);
		for (j = 0; j < 64; j++) {
			ck_assert(in[j] >= 0 && in[j] <= 1);
			ck_assert(in[j] * 16 == (float)set->pixel[i * 64 + j]);
		}
	}
	ck_assert_uint_eq(held, 450);
	/* As the description of the data set has it. */
	for (i = 0; i < 10; i++)
		ck_assert_uint_ge(of_class[i], 174);
	/* The first image is a zero: a ring of ink around paper. */
	ck_assert_uint_eq(set->label[0], 0);
	ck_assert_uint_eq(set->pixel[0], 0);
	ck_assert_uint_eq(set->pixel[3], 13);
	images_free(set);
	images_free(NULL);
}
END_TEST

START_TEST(every_truncation)
{
	size_t map_len, len;
	void *map;
	unsigned char *p = guarded(file, file_len, &map, &map_len);

	for (len = 0; len < file_len; len += SANITIZED && len > 64 ? 7 : 1) {
		memmove(p + file_len - len, file, len);
		refused(p + file_len - len, len, len < 32 ? "shorter than" : "needs 118638");
	}
	munmap(map, map_len);
}
END_TEST

/* Also on disk, for the lengths where something ends. */
START_TEST(truncated_files)
{
	static const size_t lens[] = { 0, 1, 7, 8, 31, 32, 33, 97, 98, 118633, 118634, 118637 };
	char name[] = "/tmp/pawl-test-XXXXXX";
	struct image_set *set = NULL;
	size_t i;
	int fd = mkstemp(name);

	ck_assert(fd >= 0);
	ck_assert(write(fd, file, file_len) == (ssize_t)file_len);
	ck_assert_msg(!images_load(name, &set, err, sizeof(err)), "%s", err);
	images_free(set);
	set = NULL;
	for (i = sizeof(lens) / sizeof(lens[0]); i--; ) {
		ck_assert(!ftruncate(fd, (off_t)lens[i]));
		ck_assert_int_eq(images_load(name, &set, err, sizeof(err)), -EBADMSG);
		ck_assert(strstr(err, name));
		ck_assert(!set);
	}
	close(fd);
	unlink(name);
}
END_TEST

START_TEST(bit_flips)
{
	size_t i;
	int bit;

	for (i = 0; i < file_len; i++) {
		/* The header and the checksum; of the rest a sample, since it is slow. */
		if (i >= 32 && i + 4 < file_len && i % 4999)
			continue;
		for (bit = 0; bit < 8; bit++) {
			file[i] ^= (unsigned char)(1 << bit);
			refused(file, file_len, "x.img: ");
			file[i] ^= (unsigned char)(1 << bit);
		}
	}
}
END_TEST

/* One field at a time, with a right checksum: each has its own message. */
START_TEST(wrong_fields)
{
	static const struct {
		size_t off;
		int bytes;
		uint32_t val;
		const char *where;
	} t[] = {
		{ 0, 4, 0x01080000, "offset 0: not an image file" },
		{ 8, 4, 2, "offset 8: version 2" },
		{ 12, 4, 0, "offset 12: no images" },
		{ 12, 4, 0xffffffff, "(4294967295 images of 8 x 8) needs 283467841506" },
		{ 16, 2, 0, "offset 16: images of 0 x 8" },
		{ 18, 2, 0, "offset 16: images of 8 x 0" },
		{ 18, 2, 0xffff, "images of 8 x 65535" },
		{ 20, 2, 0, "offset 20: highest pixel value 0" },
		{ 20, 2, 256, "offset 20: highest pixel value 256" },
		{ 20, 2, 15, "over 15" },
		{ 22, 2, 0, "offset 22: 0 classes" },
		{ 22, 2, 257, "offset 22: 257 classes" },
		{ 22, 2, 9, "has label 9 of 9 classes" },
		{ 24, 4, 1798, "offset 24: 1798 held out" },
		{ 24, 4, 449, "offset 24: the header has 449" },
		{ 28, 4, 1, "offset 28: reserved" },
		{ 32, 1, 10, "offset 32: image 0 has label 10" },
		{ 33, 1, 2, "offset 33: image 0 is in split 2" },
		{ 34, 1, 17, "offset 34: image 0 has a pixel of 17" },
	};
	unsigned char *p = malloc(file_len);
	size_t i;

	ck_assert(p);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		memcpy(p, file, file_len);
		put_le(p + t[i].off, t[i].val, t[i].bytes);
		sign(p, file_len);
		refused(p, file_len, t[i].where);
	}
	/* Without it, the checksum says where it stands. */
	memcpy(p, file, file_len);
	p[34] ^= 1;
	refused(p, file_len, "offset 118634: checksum");
	free(p);
}
END_TEST

START_TEST(padded)
{
	unsigned char *p = calloc(1, file_len + 1);

	ck_assert(p);
	memcpy(p, file, file_len);
	refused(p, file_len + 1, "118639 bytes");
	free(p);
}
END_TEST

START_TEST(no_such_file)
{
	struct image_set *set = NULL;
	char dir[] = "/tmp/pawl-test-XXXXXX", name[64];

	ck_assert(mkdtemp(dir));
	snprintf(name, sizeof(name), "%s/x\033[31m", dir);
	ck_assert_int_eq(images_load(name, &set, err, sizeof(err)), -ENOENT);
	ck_assert_msg(strstr(err, "x?[31m: cannot open"), "%s", err);
	ck_assert_int_eq(images_load(dir, &set, err, sizeof(err)), -EINVAL);
	ck_assert(strstr(err, "not a regular file"));
	/* Must not wait for a writer. */
	ck_assert(!mkfifo(name, 0600));
	ck_assert_int_eq(images_load(name, &set, err, sizeof(err)), -EINVAL);
	unlink(name);
	rmdir(dir);
	/* A message is optional, and cut to its buffer. */
	ck_assert_int_eq(images_load("/nonexistent", &set, NULL, 0), -ENOENT);
	err[8] = 'x';
	ck_assert_int_eq(images_load("/nonexistent", &set, err, 8), -ENOENT);
	ck_assert_str_eq(err, "/nonexi");
	ck_assert_int_eq(err[8], 'x');
	ck_assert(!set);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("images");
	TCase *tc = tcase_create("images");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, real_file);
	tcase_add_test(tc, every_truncation);
	tcase_add_test(tc, truncated_files);
	tcase_add_test(tc, bit_flips);
	tcase_add_test(tc, wrong_fields);
	tcase_add_test(tc, padded);
	tcase_add_test(tc, no_such_file);
	suite_add_tcase(s, tc);	return suite_run(s);
}
