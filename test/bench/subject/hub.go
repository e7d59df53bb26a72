package subject

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/plane"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/procs"
)

// StartHub starts program, a hub, and waits until it is ready. It returns its address for metrics,
// too.
func (s *Subject) StartHub(ctx context.Context, program string, source wire.SourceID, name string, args ...string) (*process.Process, string, error) {
	p, address, err := s.StartHubOn(ctx, s.Plane.Kubeconfig, program, source, name, args...)
	if err != nil {
		return p, "", err
	}
	return p, address, procs.Poll(ctx, 5*time.Minute, name+" is ready", func(ctx context.Context) error {
		_, err := procs.Get(ctx, "http://"+address+"/readyz")
		return errors.Join(err, p.Died())
	})
}

// StartHubOn starts program, a hub, on the API of a kubeconfig, and waits until it listens. It returns
// its address for metrics, too.
func (s *Subject) StartHubOn(
	ctx context.Context, kubeconfig, program string, source wire.SourceID, name string, args ...string,
) (*process.Process, string, error) {
	transport, err := s.Broker.WriteTransport(string(source), s.Broker.Addr)
	if err != nil {
		return nil, "", err
	}
	p, err := process.Start(s.Dir, name, append([]string{program, "--source-id=" + string(source), "--kubeconfig=" + kubeconfig,
		"--transport-config=" + transport, "--listen-address=127.0.0.1:0", "--profiling"}, args...)...)
	if err != nil {
		return nil, "", err
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	address, err := p.Line(bounded, process.Listening)
	return p, address, err
}

// Stored waits until a hub has written n statuses of agents.
func (s *Subject) Stored(ctx context.Context, n int) error {
	return procs.Poll(ctx, 10*time.Minute, "all statuses are stored", func(ctx context.Context) error {
		written, err := s.StatusWrites(ctx, "written")
		if err == nil && written < n {
			// A scrape costs the hub a millisecond.
			err = errors.Join(fmt.Errorf("%d of %d statuses are stored", written, n), procs.Pause(ctx, 200*time.Millisecond))
		}
		return err
	})
}

// StatusWrites returns how many statuses a hub counts with a result: written, if they are of agents, or delivery.
func (s *Subject) StatusWrites(ctx context.Context, result string) (int, error) {
	text, err := procs.Get(ctx, "http://"+s.Listen+"/metrics")
	if err != nil {
		return 0, err
	}
	metrics, err := plane.Parse(string(text), "workwire_hub_status_writes_total")
	return int(metrics.Sum("workwire_hub_status_writes_total", "result="+result)), err
}
