# SPDX-License-Identifier: Apache-2.0
#
# The front of pawl serve: connections, endpoints, queues, the repository.

serve-http-y := access.o answer.o buf.o call.o check.o cmd.o conn.o frame.o grpc.o grpc_infer.o h2.o helper.o http.o infer.o inference.pb-c.o json.o \
	layers.o light.o load.o log.o num.o page.o parse.o pbtxt.o port.o reflect.o repo.o route.o sched.o server.o settings.o slots.o stats.o text.o trace.o zip.o
ifdef CONFIG_SERVE
serve-http-objs := $(addprefix tools/serve/,$(serve-http-y))
serve-http-ldlibs := $(shell $(PKG_CONFIG) --libs jansson libnghttp2 libprotobuf-c zlib) -lhttp_parser -lstdc++
$(serve-http-objs): ccflags := $(shell $(PKG_CONFIG) --cflags jansson libnghttp2 libprotobuf-c zlib)
targets += $(filter-out tools/serve/inference.pb-c.o tools/serve/num.o,$(serve-http-objs))
cxx-targets += tools/serve/num.o

# the page, and its policy with the hashes of its script and style
quiet_cmd_page = GEN     $@
cmd_page = $(PYTHON3) $(srctree)/tools/gen-page.py $< $@
include/generated/page.h: $(srctree)/tools/serve/page.html $(srctree)/tools/gen-page.py FORCE | $(auto-conf)
	$(call if_changed,page)
tools/serve/page.o: include/generated/page.h
targets += include/generated/page.h
clean-files += include/generated/page.h
# what describes the services of gRPC to clients
services-protos := $(addprefix $(srctree)/tools/serve/,services.proto health.proto)
quiet_cmd_services = GEN     $@
cmd_services = protoc-c -I$(srctree)/tools/serve --include_imports \
	--descriptor_set_out=$@.set $(services-protos) && \
	$(PYTHON3) $(srctree)/tools/gen-services.py $@.set $@
include/generated/services.h: $(services-protos) $(srctree)/tools/serve/inference.proto \
		$(srctree)/tools/gen-services.py FORCE | $(auto-conf)
	$(call if_changed,services)
tools/serve/reflect.o: include/generated/services.h include/generated/inference.pb-c.h
targets += include/generated/services.h
clean-files += include/generated/services.h include/generated/services.h.set
serve-units := include/generated/pawl-serve.service $(srctree)/tools/serve/pawl-serve.socket
tools/pawl/pawl: $(serve-http-objs) $(serve-model-objs)
tools/pawl/pawl: ldlibs += $(serve-http-ldlibs) $(serve-ldlibs)
endif

# the messages of gRPC, also for pawl load; protoc-c generates the sources
ifneq ($(CONFIG_SERVE)$(CONFIG_LOAD),)
inference-proto := $(srctree)/tools/serve/inference.proto
quiet_cmd_protoc = PROTOC  $@
cmd_protoc = protoc-c -I$(dir $<) --c_out=include/generated $<
include/generated/inference.pb-c.c: $(inference-proto) FORCE | $(auto-conf)
	$(call if_changed,protoc)
include/generated/inference.pb-c.h: include/generated/inference.pb-c.c ; @:
$(addprefix tools/,serve/grpc.o serve/grpc_infer.o load/grpc.o): include/generated/inference.pb-c.h
tools/serve/inference.pb-c.o: ccflags := $(shell $(PKG_CONFIG) --cflags libprotobuf-c)
tools/serve/inference.pb-c.o: include/generated/inference.pb-c.c FORCE
	$(call if_changed,cc)
targets += include/generated/inference.pb-c.c
clean-files += $(addprefix include/generated/inference.pb-c,.c .h) tools/serve/inference.pb-c.o
include $(wildcard tools/serve/.inference.pb-c.o.d tools/serve/.inference.pb-c.o.cmd)
endif
