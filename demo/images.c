// SPDX-License-Identifier: Apache-2.0
/* Reader of digits.img; see images.h. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "images.h"
#include <tools/pawl/slurp.h>

#define HEADER		32u
#define TRAILER		4u
#define MAX_FILE	((size_t)256 << 20)

/* Bit by bit, without a table, because the file is small. */
static uint32_t crc32_ieee(const unsigned char *p, size_t len)
{
	uint32_t crc = 0xffffffffu;
	int bit;

	while (len--) {
		crc ^= *p++;
		for (bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

/* Check each field of the header against the format. */
static int parse_header(struct image_set *set, const unsigned char *p, size_t len,
			const char *name, char *err, size_t errlen)
{
	uint64_t want;

	if (len < HEADER)
		return file_err(err, errlen, -EBADMSG,
				"%s: %zu bytes, shorter than the %u of a header",
				name, len, HEADER);
	if (memcmp(p, "PAWLIMG1", 8))
		return file_err(err, errlen, -EBADMSG,
				"%s: offset 0: not an image file (no PAWLIMG1)", name);
	if (get_le32(p + 8) != 1)
		return file_err(err, errlen, -EBADMSG,
				"%s: offset 8: version %u, only 1 is known", name,
				get_le32(p + 8));
	set->count = get_le32(p + 12);
	set->height = get_le16(p + 16);
	set->width = get_le16(p + 18);
	set->max_value = get_le16(p + 20);
	set->classes = get_le16(p + 22);
	set->held_out = get_le32(p + 24);
	if (!set->count)
		return file_err(err, errlen, -EBADMSG, "%s: offset 12: no images", name);
	if (!set->height || !set->width)
		return file_err(err, errlen, -EBADMSG, "%s: offset 16: images of %u x %u",
				name, set->height, set->width);
	if (!set->max_value || set->max_value > 255)
		return file_err(err, errlen, -EBADMSG,
				"%s: offset 20: highest pixel value %u is not in 1..255",
				name, set->max_value);
	if (!set->classes || set->classes > 256)
		return file_err(err, errlen, -EBADMSG,
				"%s: offset 22: %u classes, not in 1..256", name,
				set->classes);
	if (set->held_out > set->count)
		return file_err(err, errlen, -EBADMSG,
				"%s: offset 24: %u held out of %u images", name,
				set->held_out, set->count);
	if (get_le32(p + 28))
		return file_err(err, errlen, -EBADMSG,
				"%s: offset 28: reserved field is not zero", name);
	set->size = set->height * set->width;	/* 16 bits each: no overflow */
	/* 32 + 32 bits: no overflow.  Checked before any allocation. */
	want = HEADER + TRAILER + (uint64_t)set->count * (2 + (uint64_t)set->size);
	if (want != len)
		return file_err(err, errlen, -EBADMSG,
				"%s: %zu bytes, but the header (%u images of %u x %u) needs %llu",
				name, len, set->count, set->height, set->width,
				(unsigned long long)want);
	return 0;
}

static int parse_records(struct image_set *set, const unsigned char *p,
			 const char *name, char *err, size_t errlen)
{
	uint32_t i, j, held_out = 0;
	size_t off = HEADER;

	for (i = 0; i < set->count; i++, off += 2 + (size_t)set->size) {
		if (p[off] >= set->classes)
			return file_err(err, errlen, -EBADMSG,
					"%s: offset %zu: image %u has label %u of %u classes",
					name, off, i, p[off], set->classes);
		if (p[off + 1] > 1)
			return file_err(err, errlen, -EBADMSG,
					"%s: offset %zu: image %u is in split %u, not 0 or 1",
					name, off + 1, i, p[off + 1]);
		for (j = 0; j < set->size; j++)
			if (p[off + 2 + j] > set->max_value)
				return file_err(err, errlen, -EBADMSG,
						"%s: offset %zu: image %u has a pixel of %u, over %u",
						name, off + 2 + j, i, p[off + 2 + j],
						set->max_value);
		set->label[i] = p[off];
		set->split[i] = p[off + 1];
		held_out += p[off + 1];
		memcpy(set->pixel + (size_t)i * set->size, p + off + 2, set->size);
	}
	if (held_out != set->held_out)
		return file_err(err, errlen, -EBADMSG,
				"%s: offset 24: the header has %u images held out, the records %u",
				name, set->held_out, held_out);
	return 0;
}

int images_parse(const void *data, size_t len, const char *name,
		 struct image_set **out, char *err, size_t errlen)
{
	const unsigned char *p = data;
	struct image_set *set;
	uint32_t crc, has;
	int rc;

	set = calloc(1, sizeof(*set));
	if (!set)
		goto nomem;
	rc = parse_header(set, p, len, name, err, errlen);
	if (rc)
		goto fail;
	crc = crc32_ieee(p, len - TRAILER);
	has = get_le32(p + len - TRAILER);
	if (crc != has) {
		rc = file_err(err, errlen, -EBADMSG,
			      "%s: offset %zu: checksum %08x, but the content has %08x",
			      name, len - TRAILER, has, crc);
		goto fail;
	}
	set->label = malloc(set->count);
	set->split = malloc(set->count);
	set->pixel = malloc((size_t)set->count * set->size);
	if (!set->label || !set->split || !set->pixel)
		goto nomem;
	rc = parse_records(set, p, name, err, errlen);
	if (rc)
		goto fail;
	*out = set;
	return 0;
nomem:
	rc = file_err(err, errlen, -ENOMEM, "%s: no memory for the images", name);
fail:
	images_free(set);
	return rc;
}

int images_load(const char *path, struct image_set **out, char *err, size_t errlen)
{
	void *data;
	size_t len;
	int rc;

	rc = file_slurp(path, MAX_FILE, &data, &len, err, errlen);
	if (rc)
		return rc;
	rc = images_parse(data, len, path, out, err, errlen);
	free(data);
	return rc;
}

void images_free(struct image_set *set)
{
	if (!set)
		return;
	free(set->label);
	free(set->split);
	free(set->pixel);
	free(set);
}

void images_input(const struct image_set *set, uint32_t i, float *out)
{
	const uint8_t *pixel = set->pixel + (size_t)i * set->size;
	uint32_t j;

	for (j = 0; j < set->size; j++)
		out[j] = (float)pixel[j] / (float)set->max_value;
}
