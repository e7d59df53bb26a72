package e2e

import (
	"errors"
	"fmt"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// container is what docker inspect says of one.
type container struct {
	ID     string `json:"Id"`
	Config struct {
		User   string
		Labels map[string]string
	}
	State struct {
		Status    string
		ExitCode  int
		StartedAt time.Time
		Health    *struct{ Status string }
	}
	HostConfig struct {
		ReadonlyRootfs, Privileged bool
		CapDrop, SecurityOpt       []string
		NetworkMode                string
	}
	NetworkSettings struct {
		Ports    map[string][]struct{ HostIP, HostPort string } //nolint:tagliatelle // Docker's names
		Networks map[string]any
	}
}

func (c container) service() string { return c.Config.Labels["com.docker.compose.service"] }

// containers are those of the project, by service.
func (s *stack) containers() map[string]container {
	s.Helper()
	ids := lines(s.docker("ps", "-aq", "--filter=label=com.docker.compose.project="+s.project))
	all, err := decoded[[]container](s.run("", "docker", append([]string{"inspect"}, ids...)...))
	kit.NoError(s, err)
	byService := map[string]container{}
	for _, c := range all {
		byService[c.service()] = c
	}
	return byService
}

// oneShots end when they are done.
var oneShots = map[string]bool{"certs": true, "hello": true, "applied": true, "token": true}

// healthy waits until all that goes on is healthy, and all else is done.
func (s *stack) healthy() {
	s.Helper()
	s.eventually("all services are healthy", soon, func() error {
		var faults []error
		for _, c := range s.containers() {
			faults = append(faults, c.fault())
		}
		return errors.Join(faults...)
	})
}

// fault says why c is not done, or, if it goes on, not healthy.
func (c container) fault() error {
	switch service := c.service(); {
	case oneShots[service] && (c.State.Status != "exited" || c.State.ExitCode != 0):
		return fmt.Errorf("%s is %s, exit code %d", service, c.State.Status, c.State.ExitCode)
	case !oneShots[service] && (c.State.Health == nil || c.State.Health.Status != "healthy"):
		return fmt.Errorf("%s is %s, health %v", service, c.State.Status, c.State.Health)
	}
	return nil
}
