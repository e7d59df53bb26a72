// Command source is a source of ManifestWorks in one file: it sends a work to a
// cluster over MQTT, prints its status as it arrives, and deletes it again. There
// is no hub.
//
//	go run ./examples/source --transport-config=ops.yaml --source-id=ops --state=ops.db < work.yaml
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
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
	transport := flag.String("transport-config", "", "file that says where the broker is")
	id := flag.String("source-id", "", "id of this source; the topics name it too")
	state := flag.String("state", "", "file that keeps the works; a source must not forget them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	if err := run(ctx, *transport, *id, *state, os.Stdin); err != nil {
		log.Fatalln("source:", err)
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
		return fmt.Errorf("read the work: %w", err)
	}
	broker, err := config.Load(transport)
	if err != nil {
		return err
	}
	link, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: id, Logger: slog.Default()})
	if err != nil {
		return err
	}
	client, err := source.New(source.Config{SourceID: wire.SourceID(id), Topics: broker.Topics, Transport: link, StateFile: state})
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

// sendAndDelete creates the work, waits until it is available, deletes it, and
// waits until it is gone from the cluster.
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
