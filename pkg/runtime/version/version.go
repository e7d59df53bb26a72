// Package version holds the version of Workwire.
package version

// Version is the version of Workwire, set by the linker. It is "dev" after a plain go build.
var Version = "dev"
