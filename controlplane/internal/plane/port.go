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

// chooseState chooses the name and the port of this run. It returns an error if the data in the directory are not for it.
func chooseState(files layout, c Config) (State, error) {
	state := State{Role: c.Role, Name: c.Name, Host: dialAddress(c.BindAddress), Port: c.Port}
	if c.Datastore != "" {
		state.Datastore = Postgres
	}
	before, err := ReadState(files.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return State{}, err
	}
	if before.Role != "" && before.Role != c.Role {
		return State{}, fmt.Errorf("--dir=%s holds a %s control plane, not a %s; give another directory", files.dir, before.Role, c.Role)
	}
	if err := checkSame(files.dir, before, state); err != nil {
		return State{}, err
	}
	if before.Role != "" && before.Datastore == "" {
		if err := files.checkReplaced(); err != nil {
			return State{}, err
		}
	}
	if c.Port != 0 {
		return state, checkPort(c.BindAddress, c.Port)
	}
	if before.Port != 0 && checkPort(c.BindAddress, before.Port) == nil {
		state.Port = before.Port
		return state, nil
	}
	state.Port, err = freePort(c.BindAddress)
	return state, err
}

// dialAddress returns an address at which this machine reaches a listener on address.
func dialAddress(address string) string {
	if ip := net.ParseIP(address); ip != nil && ip.IsUnspecified() {
		return loopback
	}
	return address
}

// checkPort returns an error if port on address cannot be listened on.
func checkPort(address string, port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("port %d on %s is taken by another program; set another --port, or leave it out for any free port", port, address)
	case err != nil:
		return fmt.Errorf("cannot listen on --port=%d of %s: %w; set another --port, or leave it out for any free port", port, address, err)
	}
	return listener.Close()
}

func freePort(address string) (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, fmt.Errorf("finding a free port on %s: %w", address, err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// lostPort reports whether err is an API server's error that its port is in use.
func lostPort(err error) bool {
	return err != nil && strings.Contains(err.Error(), "address already in use")
}
