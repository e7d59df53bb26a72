// Command source is a source of ManifestWorks in one file, without a hub. It delivers a work to a
// cluster over MQTT, prints its status as it arrives, and deletes the work again.
//
//	go run ./examples/source --transport-config=ops.yaml --source-id=ops --state=ops.db < work.yaml
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

func main() {
	transport := flag.String("transport-config", "", "path of the transport configuration file")
	id := flag.String("source-id", "", "id of this source, the one that the topics name")
	state := flag.String("state", "", "path of the file that stores the works")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if err := run(ctx, *transport, *id, *state, os.Stdin); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "source:", err)
		os.Exit(1)
	}
	stop()
}

func run(ctx context.Context, transport, id, state string, in io.Reader) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	work := &workv1.ManifestWork{}
	if err := yaml.UnmarshalStrict(text, work); err != nil {
		return fmt.Errorf("decode the work: %w", err)
	}
	broker, err := config.Load(transport)
	if err != nil {
		return err
	}
	connection, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: id})
	if err != nil {
		return err
	}
	client, err := source.New(source.Config{SourceID: wire.SourceID(id), Topics: broker.Topics, Transport: connection, StateFile: state})
	if err != nil {
		return err
	}
	ctx, done := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return client.Run(ctx) })
	group.Go(func() error {
		defer done()
		return sendAndDelete(ctx, client, work)
	})
	return group.Wait()
}

// sendAndDelete creates the work, waits until it is available, deletes it, and waits until it is
// deleted from the cluster.
func sendAndDelete(ctx context.Context, client *source.Client, work *workv1.ManifestWork) error {
	works := client.ManifestWorks(work.Namespace)
	changes, err := works.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer changes.Stop()
	if _, err := works.Create(ctx, work, metav1.CreateOptions{}); err != nil {
		return err
	}
	for deleting := false; ; {
		event, open := <-changes.ResultChan()
		if !open {
			return ctx.Err()
		}
		changed, ok := event.Object.(*workv1.ManifestWork)
		if !ok || changed.Name != work.Name {
			continue
		}
		if event.Type == watch.Deleted {
			fmt.Println("gone from", work.Namespace)
			return nil
		}
		for _, c := range changed.Status.Conditions {
			fmt.Printf("%s=%s %s\n", c.Type, c.Status, c.Message)
		}
		if !deleting && meta.IsStatusConditionTrue(changed.Status.Conditions, workv1.WorkAvailable) {
			deleting = true
			if err := works.Delete(ctx, work.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
	}
}
