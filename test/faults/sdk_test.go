package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	sdk "github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/test/kit"
)

// call is a request to the source program, and answer what it returns.
type (
	call struct {
		Verb, Name string
		Work       *workv1.ManifestWork
	}
	answer struct {
		Work   *workv1.ManifestWork
		Works  *workv1.ManifestWorkList
		Status *metav1.Status
	}
)

// runSource is a small program with the SDK: it keeps its works in a state file, and serves calls
// at a socket.
func runSource(ctx context.Context, args []string) error {
	transportFile, stateFile, cluster, socket := args[0], args[1], args[2], args[3]
	broker, err := config.Load(transportFile)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	transport, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: source + "-sdk", Logger: logger})
	if err != nil {
		return err
	}
	client, err := sdk.New(sdk.Config{SourceID: source, Topics: broker.Topics, Transport: transport, StateFile: stateFile, Logger: logger})
	if err != nil {
		return err
	}
	_ = os.Remove(socket) // of one that was killed
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go serveCalls(ctx, listener, client.ManifestWorks(cluster))
	return client.Run(ctx)
}

// serveCalls serves one call for each connection.
func serveCalls(ctx context.Context, listener net.Listener, works workclientv1.ManifestWorkInterface) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		var c call
		if json.NewDecoder(connection).Decode(&c) == nil {
			_ = json.NewEncoder(connection).Encode(serveCall(ctx, works, &c))
		}
		_ = connection.Close()
	}
}

func serveCall(ctx context.Context, works workclientv1.ManifestWorkInterface, c *call) (a answer) {
	var err error
	switch c.Verb {
	case "create":
		a.Work, err = works.Create(ctx, c.Work, create)
	case "update":
		a.Work, err = works.Update(ctx, c.Work, update)
	case "get":
		a.Work, err = works.Get(ctx, c.Name, metav1.GetOptions{})
	case "list":
		a.Works, err = works.List(ctx, metav1.ListOptions{})
	case "delete":
		err = works.Delete(ctx, c.Name, deleted)
	}
	if err != nil {
		a = answer{Status: &metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Reason: apierrors.ReasonForError(err)}}
	}
	return a
}

// remoteWorks are the works of the source program, as far as the model uses them.
type remoteWorks struct {
	workclientv1.ManifestWorkInterface
	socket string
}

func (r remoteWorks) call(ctx context.Context, c call) (a answer, err error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
	if err != nil {
		return a, err
	}
	defer func() { _ = connection.Close() }()
	if err := json.NewEncoder(connection).Encode(&c); err != nil {
		return a, err
	}
	if err := json.NewDecoder(bufio.NewReader(connection)).Decode(&a); err != nil {
		return a, fmt.Errorf("%s %s: %w", c.Verb, c.Name, err)
	}
	if a.Status != nil {
		err = &apierrors.StatusError{ErrStatus: *a.Status}
	}
	return a, err
}

func (r remoteWorks) Create(ctx context.Context, work *workv1.ManifestWork, _ metav1.CreateOptions) (*workv1.ManifestWork, error) {
	a, err := r.call(ctx, call{Verb: "create", Work: work})
	return a.Work, err
}

func (r remoteWorks) Update(ctx context.Context, work *workv1.ManifestWork, _ metav1.UpdateOptions) (*workv1.ManifestWork, error) {
	a, err := r.call(ctx, call{Verb: "update", Work: work})
	return a.Work, err
}

func (r remoteWorks) Get(ctx context.Context, name string, _ metav1.GetOptions) (*workv1.ManifestWork, error) {
	a, err := r.call(ctx, call{Verb: "get", Name: name})
	return a.Work, err
}

func (r remoteWorks) List(ctx context.Context, _ metav1.ListOptions) (*workv1.ManifestWorkList, error) {
	a, err := r.call(ctx, call{Verb: "list"})
	return a.Works, err
}

func (r remoteWorks) Delete(ctx context.Context, name string, _ metav1.DeleteOptions) error {
	_, err := r.call(ctx, call{Verb: "delete", Name: name})
	return err
}

// startSource starts the source program in place of the hub.
func (w *world) startSource(stateFile string) {
	w.Helper()
	socket := filepath.Join(w.Dir, "s")
	w.hub = w.startProgram("source", "hub", w.TransportFile(source), stateFile, w.cluster, socket)
	w.works = remoteWorks{socket: socket}
	kit.Eventually(w, "the source serves", func() error {
		_, err := w.works.List(w.Context(), metav1.ListOptions{})
		return errors.Join(err, w.hub.Died())
	})
}

// TestOldStateFile: a program with the SDK is killed, its state file replaced by an older copy, and
// started again. What the copy has is on the cluster again, under the same UIDs. The works that it
// does not have are many, so that the agent holds them.
func TestOldStateFile(t *testing.T) {
	w := newWorld(t, 1, func(w *world) { w.agentArgs = []string{"--digest-interval=1s"} })
	kit.NoError(w, w.hub.Stop())
	file := filepath.Join(w.Dir, "source.db")
	w.startSource(file)
	unchanged := []string{"unchanged-0", "unchanged-1", "unchanged-2", "unchanged-3"}
	for _, work := range append(unchanged, "changed", "shrunk", "deleted") {
		w.put(work, "copy", "a", "b")
	}
	w.converge()
	kit.NoError(w, w.hub.Stop())
	old, b := w.read(file), w.modelNow()
	w.startSource(file)
	for _, work := range []string{"new-0", "new-1", "new-2", "new-3", "changed"} {
		w.put(work, "later", "a", "b")
	}
	w.put("shrunk", "copy", "a")
	w.remove("deleted")
	w.converge()
	before := w.versions()
	kit.NoError(w, w.hub.Kill())
	w.write(file, old)
	w.goBack(b)
	w.startSource(file)
	w.holdsAndReleases(before, unchanged, 4)
	w.put("changed", "again", "a")
	w.converge()
	w.end()
}
