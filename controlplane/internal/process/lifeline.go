package process

import (
	"fmt"
	"os"
	"strconv"
)

// lifelineEnv tells a child the file descriptor of its end of the lifeline.
const lifelineEnv = "WORKWIRE_LIFELINE_FD"

// Lifeline ties children to the life of the process that made it.
type Lifeline struct {
	child, parent *os.File
}

// NewLifeline opens a lifeline. Its parent end closes with Close or with the
// process.
func NewLifeline() (*Lifeline, error) {
	child, parent, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("opening the pipe that ties child processes to this one: %w", err)
	}
	return &Lifeline{child: child, parent: parent}, nil
}

// Close cuts the lifeline: children that still run end themselves.
func (l *Lifeline) Close() {
	l.parent.Close()
	l.child.Close()
}

// HoldOn makes this process end as soon as the parent that started it with a
// Lifeline is gone. In a process started any other way it does nothing. The
// process ends with status 1 and without cleaning up, as after a kill: call
// it only where data on disk survives that.
func HoldOn() {
	value, ok := os.LookupEnv(lifelineEnv)
	if !ok {
		return
	}
	os.Unsetenv(lifelineEnv)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		fmt.Fprintf(os.Stderr, "%s=%q is no file descriptor\n", lifelineEnv, value)
		os.Exit(2)
	}
	go func() {
		pipe := os.NewFile(uintptr(fd), "lifeline")
		// Nobody writes: Read returns when the last writer is gone.
		pipe.Read(make([]byte, 1)) //nolint:errcheck // end of file or error, both mean the same
		fmt.Fprintln(os.Stderr, "the process that started this one is gone: ending")
		os.Exit(1)
	}()
}
