// Package version says which version of Workwire a binary is.
package version

// Version is set by the linker; a plain `go build` leaves "dev".
var Version = "dev"
