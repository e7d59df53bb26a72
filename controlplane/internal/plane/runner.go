package plane

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/controlplane/internal/credentials"
	"github.com/workwire/workwire/controlplane/internal/process"
)

// runner owns the processes of one control plane. It is not safe for concurrent use.
type runner struct {
	config  Config
	files   layout
	state   State
	ca      *credentials.Authority
	lock    *os.File
	started time.Time

	lifeline *process.Lifeline
	running  []runningProgram
	watchers sync.WaitGroup
	// end is called with an error when a process ends by itself.
	end context.CancelCauseFunc
}

type runningProgram struct {
	*process.Child
	grace time.Duration
}

func (r *runner) open(end context.CancelCauseFunc) (err error) {
	r.end = end
	r.lifeline, err = process.NewLifeline()
	return err
}

// close stops the processes and waits for each, in reverse order of their start: the API server
// must end before what keeps its data.
func (r *runner) close() {
	for i := len(r.running) - 1; i >= 0; i-- {
		p := r.running[i]
		if !p.Stop(p.grace) {
			r.config.Progress(fmt.Sprintf("%s did not end within %s and was killed", p.Name(), p.grace))
		}
	}
	r.watchers.Wait()
	r.lifeline.Close()
}

// start starts the processes in the order of their dependencies, and returns when the control plane
// is ready.
func (r *runner) start(ctx context.Context) error {
	if err := r.writeAccess(); err != nil {
		return err
	}
	store := datastore(r.config)
	if err := r.launch(store); err != nil {
		return err
	}
	err := await(ctx, often, store.name, func(context.Context) error {
		_, err := os.Stat(r.files.path(socketName(etcdURL)))
		return err
	})
	if err != nil {
		return err
	}
	server := apiServer(r.config.Role, r.config.BindAddress, r.state.Port)
	if err := r.launch(server); err != nil {
		return err
	}
	client, err := r.connect()
	if err != nil {
		return err
	}
	if err := await(ctx, often, server.name, func(ctx context.Context) error { return serving(ctx, client) }); err != nil {
		return err
	}
	for _, p := range controllers(r.config.Role) {
		if err := r.launch(p); err != nil {
			return err
		}
	}
	if r.config.Role == Spoke {
		r.config.Progress(fmt.Sprintf("waiting for %d nodes", r.config.Nodes))
		if err := setNodes(ctx, client, r.config.Nodes); err != nil {
			return err
		}
	}
	if err := await(ctx, often, "the controllers", func(ctx context.Context) error {
		if r.config.Role == Hub {
			return controlled(ctx, client)
		}
		return usable(ctx, client, r.config.Nodes)
	}); err != nil {
		return err
	}
	return r.apply(ctx)
}

// launch starts a program, and calls r.end when it ends.
func (r *runner) launch(p program) error {
	r.config.Progress("starting " + p.name)
	if p.user != "" {
		if err := r.writeKubeconfig(r.files.pki(p.name+".kubeconfig"), r.state.Server(), p.user, p.groups); err != nil {
			return err
		}
	}
	child, err := process.Start(process.Spec{
		Name: p.name, Args: p.args, Input: p.input, Dir: r.files.dir, Log: r.files.log(p.name),
		Lifeline: r.lifeline, Keep: []*os.File{r.lock},
	})
	if err != nil {
		return err
	}
	r.running = append(r.running, runningProgram{child, p.grace})
	r.watchers.Go(func() { r.end(child.Err()) })
	return nil
}

// connect returns a client of the administrator.
func (r *runner) connect() (kubernetes.Interface, error) {
	config, err := r.files.administrator()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", r.state.Server(), err)
	}
	return client, nil
}

// writeAccess writes the state, and the kubeconfigs of the administrator and of Config.Access.
func (r *runner) writeAccess() error {
	if err := r.files.writeState(r.state); err != nil {
		return err
	}
	if err := r.writeKubeconfig(r.files.path("kubeconfig"), r.state.Server(), "admin", []string{"system:masters"}); err != nil {
		return err
	}
	server := r.state.Server()
	if len(r.config.Hosts) > 0 {
		server = r.state.at(r.config.Hosts[0])
	}
	for _, a := range r.config.Access {
		if err := r.writeKubeconfig(a.File, server, a.User, nil); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) writeKubeconfig(path, server, user string, groups []string) error {
	cert, err := r.ca.IssueClient(user, groups, credentials.Lifetime)
	if err != nil {
		return err
	}
	data, err := credentials.Kubeconfig(credentials.Access{
		Context: r.state.Name, User: user, Server: server, CA: r.ca.CertPEM(), Client: cert,
	})
	if err != nil {
		return err
	}
	return credentials.WriteFile(path, data, 0o600)
}

// socketName returns the path of a unix URL, relative to the working directory.
func socketName(url string) string { return strings.TrimPrefix(url, "unix://") }
