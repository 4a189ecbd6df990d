/*
 * Completes the floating point state that User-Mode Linux writes, for processors with more of it than UML 6.1 knows.
 *
 * The guest kernel keeps the XSAVE area of each process at a fixed size of some 2.7 kB, and writes it back with
 * PTRACE_SETREGSET. A host whose processor has AMX has 11 kB of state and refuses a shorter area with EFAULT; the guest
 * then panics at its first program. This library is preloaded into linux.uml. It reads the whole state of the process,
 * lays what the guest gave over its beginning, and writes the whole.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Bytes of the largest XSAVE area that a host may have; AMX needs 11 kB. */
#define LARGEST_STATE 65536

static unsigned char whole[LARGEST_STATE];

static long raw_ptrace(long request, long pid, void *address, void *data)
{
	return syscall(SYS_ptrace, request, pid, address, data);
}

/* Writes a floating point state that may be shorter than that of the host. */
static long set_state(long pid, void *type, struct iovec *given)
{
	struct iovec all = { whole, sizeof whole };

	if (raw_ptrace(PTRACE_GETREGSET, pid, type, &all) != 0 || all.iov_len <= given->iov_len)
		return raw_ptrace(PTRACE_SETREGSET, pid, type, given);
	memcpy(whole, given->iov_base, given->iov_len);
	return raw_ptrace(PTRACE_SETREGSET, pid, type, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	long pid = va_arg(arguments, int);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE)
		return set_state(pid, address, data);
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		/* The system call stores the word where the library function returns it. */
		long word;
		long result = raw_ptrace(request, pid, address, &word);
		if (result < 0)
			return result;
		errno = 0;
		return word;
	}
	return raw_ptrace(request, pid, address, data);
}
