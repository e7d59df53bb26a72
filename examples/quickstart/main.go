// Command quickstart puts a ConfigMap on cluster1, and waits until it is there.
//
//	go run . ops.yaml blue
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: ops TRANSPORT-CONFIG COLOUR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run connects to the broker, and delivers.
func run(file, colour string) error {
	broker, err := config.Load(file)
	if err != nil {
		return err
	}
	connection, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: "ops"})
	if err != nil {
		return err
	}
	client, err := source.New(source.Config{
		SourceID: "ops", Topics: broker.Topics, Transport: connection,
		StateFile: "ops.db", // what is here survives a restart
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	err = deliver(ctx, client, colour)
	stop()
	return errors.Join(err, <-ended)
}

// deliver creates or changes the work, and waits until the agent has applied it.
func deliver(ctx context.Context, client *source.Client, colour string) error {
	work, err := client.Apply(ctx, settings(colour))
	if err != nil {
		return err
	}
	fmt.Println("settings: stored, generation", work.Generation)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	work, err = client.WaitFor(ctx, work.Namespace, work.Name, source.Applied)
	if err != nil {
		return err
	}
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	fmt.Printf("settings: Applied=%s %s\n", applied.Status, applied.Message)
	return nil
}

// settings returns a work with one ConfigMap. The namespace is the name of the cluster.
func settings(colour string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "settings"}}
	work.Spec.Workload.Manifests = make([]workv1.Manifest, 1)
	work.Spec.Workload.Manifests[0].Raw = fmt.Appendf(nil, `{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": {"namespace": "default", "name": "settings"},
		"data": {"colour": %q}
	}`, colour)
	return work
}
