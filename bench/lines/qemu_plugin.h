// What lines.c uses of the interface between qemu's user-mode emulation and its plug-ins,
// version 1. Debian's package has no header for it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t PluginId;
typedef uint32_t AccessInfo;
struct qemu_info_t;
struct qemu_plugin_tb;    // code that is translated together
struct qemu_plugin_insn;  // one of its instructions

typedef void (*OnTranslation)(PluginId id, struct qemu_plugin_tb* code);
typedef void (*OnAccess)(unsigned thread, AccessInfo info, uint64_t address, void* context);
typedef void (*OnThread)(PluginId id, unsigned thread);
typedef void (*OnSystemCall)(PluginId id, unsigned thread, int64_t number, uint64_t a1, uint64_t a2,
                             uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7,
                             uint64_t a8);
typedef void (*OnSystemCallEnd)(PluginId id, unsigned thread, int64_t number, int64_t result);
typedef void (*OnEnd)(PluginId id, void* context);

enum { kNoRegisters = 0 };     // that the callback reads or writes
enum { kLoadsAndStores = 3 };  // the accesses that call it

void qemu_plugin_register_vcpu_tb_trans_cb(PluginId id, OnTranslation call);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* code);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb* code, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn* instruction);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn* instruction, OnAccess call,
                                      int registers, int accesses, void* context);
bool qemu_plugin_mem_is_store(AccessInfo info);  // also true for an atomic operation
void qemu_plugin_register_vcpu_exit_cb(PluginId id, OnThread call);
void qemu_plugin_register_vcpu_syscall_cb(PluginId id, OnSystemCall call);
void qemu_plugin_register_vcpu_syscall_ret_cb(PluginId id, OnSystemCallEnd call);
void qemu_plugin_register_atexit_cb(PluginId id, OnEnd call, void* context);
