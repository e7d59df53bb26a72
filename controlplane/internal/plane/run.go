package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/workwire/workwire/controlplane/internal/credentials"
)

// Run runs the control plane until ctx ends, then stops it and returns nil. It returns an error if
// the control plane cannot start, is stopped before it is ready, or one of its processes ends. When
// Run returns, all its processes have ended and the directory can be used by another Run; the data
// stays.
func Run(ctx context.Context, c Config) error {
	started := time.Now()
	c, err := c.complete()
	if err != nil {
		return err
	}
	files := layout{c.Dir}
	if err := files.prepare(); err != nil {
		return err
	}
	lock, err := files.lock(2 * time.Second)
	if err != nil {
		return err
	}
	defer lock.Close()
	state, err := chooseState(files, c)
	if err != nil {
		return err
	}
	ca, err := prepareFiles(files, c)
	if err != nil {
		return err
	}
	// Another process may take the chosen port before the API server listens on it. If --port is
	// not set, choose another port.
	const attempts = 5
	for attempt := 1; ; attempt++ {
		err := runOnce(ctx, &runner{config: c, files: files, state: state, ca: ca, lock: lock, started: started})
		if !lostPort(err) || c.Port != 0 || attempt == attempts {
			return err
		}
		c.Progress(fmt.Sprintf("port %d is now in use by another process: trying another port", state.Port))
		if state.Port, err = freePort(c.BindAddress); err != nil {
			return err
		}
	}
}

// runOnce starts the processes, waits for the end, and stops them.
func runOnce(ctx context.Context, r *runner) error {
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	if err := r.open(end); err != nil {
		return err
	}
	defer r.close()
	defer r.files.unmarkReady()

	startCtx, cancel := context.WithTimeout(life, r.config.StartTimeout)
	defer cancel()
	if err := r.start(startCtx); err != nil {
		switch {
		case ctx.Err() != nil:
			return errors.New("stopped before the control plane was ready")
		case life.Err() != nil:
			return context.Cause(life)
		case startCtx.Err() != nil:
			return fmt.Errorf("the control plane was not ready within %s: %w; see the logs in %s, or allow more with --start-timeout",
				r.config.StartTimeout, err, r.files.path("logs"))
		}
		return err
	}
	if err := r.files.markReady(); err != nil {
		return err
	}
	r.config.Ready(Running{
		Kubeconfig: r.files.path("kubeconfig"), Server: r.state.Server(), Took: time.Since(r.started),
	})
	<-life.Done()
	if ctx.Err() != nil {
		r.config.Progress("stopping")
		return nil
	}
	return context.Cause(life)
}

// prepareFiles writes the files that do not depend on the port.
func prepareFiles(files layout, c Config) (*credentials.Authority, error) {
	files.unmarkReady() // left by a killed control plane
	// The sockets of a killed etcd must not be mistaken for those of the new one.
	for _, url := range []string{etcdURL, etcdPeerURL} {
		if err := os.Remove(files.path(socketName(url))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("removing an old socket: %w", err)
		}
	}
	ca, err := credentials.OpenAuthority(files.path("pki"))
	if err != nil {
		return nil, err
	}
	if err := credentials.EnsureSigningKey(files.pki("service-account.key")); err != nil {
		return nil, err
	}
	serving, err := ca.IssueServer("apiserver", append([]string{
		loopback, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", dialAddress(c.BindAddress),
	}, c.Hosts...))
	if err != nil {
		return nil, err
	}
	if err := credentials.WritePair(files.path("pki"), "apiserver", serving); err != nil {
		return nil, err
	}
	if c.Role == Spoke {
		err = credentials.WriteFile(files.path("stages.yaml"), []byte(stages()), 0o600)
	}
	return ca, err
}
