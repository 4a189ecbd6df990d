//go:build tools

package main

// The emulator is built from the same pinned modules; it is a program, so nothing else refers to it.
import _ "github.com/openconfig/bootz/server/emulator"
