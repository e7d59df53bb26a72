package plane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// chooseState decides the name and port of this run.
func chooseState(files layout, c Config) (State, error) {
	state := State{Role: c.Role, Name: c.Name, Port: c.Port}
	before, err := ReadState(files.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return State{}, err
	}
	if before.Role != "" && before.Role != c.Role {
		return State{}, fmt.Errorf("--dir=%s holds a %s control plane, not a %s; give another directory", files.dir, before.Role, c.Role)
	}
	if c.Port != 0 {
		return state, checkPort(c.Port)
	}
	if before.Port != 0 && checkPort(before.Port) == nil {
		state.Port = before.Port
		return state, nil
	}
	state.Port, err = freePort()
	return state, err
}

// checkPort reports why port cannot be listened on, if so.
func checkPort(port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("port %d on 127.0.0.1 is taken by another program; give another --port, or leave it out for any free one", port)
	case err != nil:
		return fmt.Errorf("cannot listen on --port=%d: %w; give another --port, or leave it out for any free one", port, err)
	}
	return listener.Close()
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port on 127.0.0.1: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// lostPort tells whether err is an API server's report that its port is taken.
func lostPort(err error) bool {
	return err != nil && strings.Contains(err.Error(), "address already in use")
}
