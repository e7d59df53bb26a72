package process

import (
	"fmt"
	"os"
	"strconv"
)

// lifelineEnv is the environment variable with the file descriptor of the child's end.
const lifelineEnv = "WORKWIRE_LIFELINE_FD"

// Lifeline ends children when the process that created it ends.
type Lifeline struct {
	child, parent *os.File
}

// NewLifeline opens a lifeline. The parent's end is closed by Close, or when the process ends.
func NewLifeline() (*Lifeline, error) {
	child, parent, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("opening the pipe that ends child processes with this one: %w", err)
	}
	return &Lifeline{child: child, parent: parent}, nil
}

// Close closes the lifeline: children that still run exit.
func (l *Lifeline) Close() {
	l.parent.Close()
	l.child.Close()
}

// ExitWithParent makes this process exit when the parent that started it with a Lifeline ends. It
// does nothing in other processes. The process exits with status 1 and without cleanup, as after a
// kill: its data on disk must survive that.
func ExitWithParent() {
	value, ok := os.LookupEnv(lifelineEnv)
	if !ok {
		return
	}
	os.Unsetenv(lifelineEnv)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		fmt.Fprintf(os.Stderr, "%s=%q is not a file descriptor\n", lifelineEnv, value)
		os.Exit(2)
	}
	go func() {
		pipe := os.NewFile(uintptr(fd), "lifeline")
		// Nobody writes: Read returns when the write end is closed.
		pipe.Read(make([]byte, 1)) //nolint:errcheck // end of file and errors mean the same
		fmt.Fprintln(os.Stderr, "the parent process has ended: exiting")
		os.Exit(1)
	}()
}
