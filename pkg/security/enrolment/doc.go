// Package enrolment is how a cluster gets its certificate over the broker, with a token and no key that was carried
// (docs/join.md; docs/protocol.md, Joining). It is pure: hub, agent and workctl do the I/O.
//
// A [Token] says where the broker is and whom to trust there, and has a key that proves that its holder was let in; the hub
// holds the public half of that key, a [Grant]. The agent makes a device key, which stays on the cluster for ever, and for each
// certificate a key of its own. It publishes a [Request], signed with the device key and, the first time, with the token's,
// and the hub publishes an [Answer], signed with the key of its own certificate at the broker:
//
//	agent                                                hub
//	  │ Request{Device, CSR}  ──────────────────────────▶ │ who asks without a challenge gets one:
//	  │ ◀───────────────────────────  Answer{Challenge}   │ requests cannot be replayed, whatever the clocks say
//	  │ Request{Device, CSR, Challenge, Token}  ────────▶ │ Decide: refuse, wait for approval, or issue
//	  │ ◀──────────────────  Answer{Certificate, Trust}   │
//
// Whoever reads all of that learns nothing that lets it join: the token's key and the device key are never sent, and a
// certificate is of use only to who has its key.
//
//	token, grant, err := enrolment.New(enrolment.Token{Broker: "broker.example.com:8883", Source: "hub1", ...})
//	request := enrolment.Request{Cluster: "cluster1", ...}
//	event, err := request.Sign(device, token.Key())
package enrolment
