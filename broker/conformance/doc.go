// Package conformance has tests that check work-broker against the MQTT 5 specification, packet by
// packet and byte by byte, and against packets that clients must not send. The broker's part is that
// of a server with maximum QoS 1, without retained messages and without topic aliases. Names such as
// MQTT-3.1.2-24 are the specification's numbers of its normative statements.
package conformance
