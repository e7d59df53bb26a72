package symptoms

import (
	"context"
	"fmt"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// noisy sends what no agent does, with the credentials of the cluster: 400 megabytes at once, compressed.
func (p *patient) noisy() {
	p.accept(true)
	p.hub.Log.Await(p, "connected to the broker")
	tr := p.Transport(p.cluster, p.cluster+"-intruder", p.Topics, p.log.Logger())
	connected := make(chan struct{}, 1)
	kit.Run(p, "intruder", func(ctx context.Context) error {
		return tr.Run(ctx, transport.Handler{
			Connected: func(context.Context, transport.Connection) { connected <- struct{}{} },
			Received:  func(_ context.Context, m transport.Message) { m.Ack() },
		})
	})
	kit.Receive(p, "the intruder connects", connected)
	data := wirekit.Compressed(`{"no":"` + strings.Repeat("a", 1<<20-100) + `"}`)
	var senders errgroup.Group
	senders.SetLimit(8)
	for i := range 400 {
		senders.Go(func() error {
			e := cloudevents.New()
			e.SetID(fmt.Sprint(i))
			e.SetType("io.open-cluster-management.works.v1alpha1.manifestbundles.status.update_request")
			e.SetSource(p.cluster + "-agent")
			e.SetTime(time.Now())
			if err := e.SetData("application/json", data); err != nil {
				return err
			}
			return tr.Publish(p.Context(), "sources/"+string(source)+"/clusters/"+p.cluster+"/agentevents", e)
		})
	}
	kit.NoError(p, senders.Wait())
	p.quoted("the ManagedCluster", p.clusterConditions, "Noisy", "OverQuota", "the cluster sends more bytes of large messages than its quota")
}
