# What the library and the program have alike: included after PGXS.
# BUILT_FOR is the file that says for what the objects beside it were made.

# The server's headers are not ours to clean: as system headers they raise no
# warnings, whatever is asked for in COPT.
as_system = $(patsubst -I$(1),-isystem $(1),$(2))
override CPPFLAGS := $(call as_system,$(includedir_server),$(call as_system,$(includedir_internal),$(CPPFLAGS)))

# A server built with gcc hands on options that clang does not know, and declares
# functions like printf in a way that it does not.
ifneq ($(findstring clang,$(shell $(CC) --version 2>/dev/null)),)
override CFLAGS += -Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes
endif

# PGXS tracks no headers, and not for which server and with which compiler the
# objects were made: those of one are of no use to another.
built_for := $(CC) $(shell { $(PG_CONFIG) --version; $(PG_CONFIG) --configure; } | cksum)
ifneq ($(built_for),$(shell cat $(BUILT_FOR) 2>/dev/null))
$(shell echo '$(built_for)' > $(BUILT_FOR))
endif
