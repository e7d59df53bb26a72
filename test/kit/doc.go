// Package kit has the helpers that all tests of Workwire share. It imports client-go, the
// Prometheus client and the standard library only, so that every package's tests can use it,
// in-package tests included.
//
//   - Waiting: [Eventually] and [True] poll a condition, [Await] watches a Kubernetes object until it
//     fulfills a condition, [Receive] takes a value from a channel. All fail the test after [Patience];
//     [Within] takes another limit.
//   - Errors: [NoError] ends the test on an error.
//   - Running: [Run] runs a component until the end of the test, or until it is stopped, and fails the
//     test on its error.
//   - Requests: [CountRequests] records the API requests of a client configuration by verb, resource,
//     namespace and name, and can make them fail; [RoundTripper] and [Intercept] are for tests that
//     change requests or responses.
//   - Metrics: [Metric] reads a value from a [prometheus.Gatherer]; [Gather] and [ParseMetrics] return
//     all of them, from a registry or from the text of /metrics.
//   - Logs: [Logger] writes to the test's output; [Log] keeps what was logged.
//   - Names: [Unique] returns a name that no other test uses, for tests that share a control plane.
//
// Its subpackages start what tests run against:
//
//   - controlplane: a Kubernetes API server, the project's bin/controlplane
//   - world: a broker, hubs, agents and sources of the SDK together, under names of their own
//   - process, brokerkit: programs as processes of their own, and brokers among them
//   - keykit: keys of programs that sign
//   - wirekit: a scripted agent, and a scripted source, on any transport
package kit
