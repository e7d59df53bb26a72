package sim

import (
	"context"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// forger publishes what hub and agents have not said, where these sign: it has the key of no source.
type forger struct {
	transport *memory.Transport
	signer    *signing.Signer // of agents
	stop      context.CancelFunc
}

// forgedValue is that of the objects in forged specs.
const forgedValue = "forged"

func (w *World) startForger() {
	if w.o.Keys == "" {
		return
	}
	signer, _, err := openAgentKeys(w.o.Keys, w.logger, time.Now)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(background)
	w.forger = &forger{w.broker.Client("forger"), signer, stop}
	go func() {
		_ = w.forger.transport.Run(ctx, transport.Handler{Received: func(context.Context, transport.Message) {}})
	}()
}

// forge publishes a spec, a deletion or the end of a deletion that nobody has sent.
func (w *World) forge() {
	c, name := w.anyWork()
	work, err := w.people.WorkV1().ManifestWorks(string(c.name)).Get(background, name, metav1.GetOptions{})
	if w.forger == nil || err != nil {
		return
	}
	now, topic := metav1.Now(), "sources/hub1/clusters/"+string(c.name)+"/sourceevents"
	spec := &wire.Spec{UID: work.UID, Generation: wire.Generation(work.Generation + 1), Source: hubSource, Cluster: c.name, Action: wire.Update, Meta: work.ObjectMeta}
	var message wire.Message = spec
	switch w.random.intN(3) {
	case 0:
		spec.Bundle = &wire.Bundle{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: configMap(name+"-0", forgedValue)}}}}
	case 1:
		spec.DeletionTimestamp, spec.Action = &now, wire.Delete
	case 2:
		topic = "sources/hub1/clusters/" + string(c.name) + "/agentevents"
		message = &wire.Status{
			UID: work.UID, Generation: wire.Generation(work.Generation), Source: hubSource, Cluster: c.name, Agent: c.agent.id, Action: wire.Update, Meta: work.ObjectMeta,
			Sequence: wire.SequenceID(now.UnixNano()), Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{
				Type: workv1.WorkDeleted, Status: metav1.ConditionTrue, ObservedGeneration: work.Generation, LastTransitionTime: now, Reason: "ManifestsDeleted",
			}}},
		}
	}
	e, err := wire.Encode(message, time.Now())
	if err != nil {
		panic(err)
	}
	w.sendForged(topic, e)
}

// sendForged publishes e, unsigned or signed by who may not.
func (w *World) sendForged(topic string, e cloudevents.Event) {
	if strings.HasSuffix(topic, "/sourceevents") && w.random.chance(50) {
		if err := w.forger.signer.Sign(&e); err != nil {
			panic(err)
		}
	}
	w.trace.note("forger", "publishes "+describe(e)+" to "+topic)
	_ = w.forger.transport.Publish(background, topic, e)
}

// watchForged finds forged objects on a cluster.
func (w *World) watchForged(cluster string, c kubeapi.Write) {
	if c.Kind.Kind == "ConfigMap" && valueOf(c.After) == forgedValue {
		w.violations.add("ConfigMap " + c.After.GetName() + " of " + cluster + " is that of a forged spec")
	}
}
