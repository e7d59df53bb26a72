package brokerbench

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/mqttflood"
)

// quantile of the round trips that are compared.
const quantile = 0.99

// floods measures the round trips of others without and with one agent that floods, each kind with a
// new broker.
func (b *bench) floods(ctx context.Context, run int) error {
	for i, kind := range slices.Sorted(maps.Keys(mqttflood.Kinds)) {
		if !b.board.Wants(flood + kind) {
			continue
		}
		s, err := b.start(ctx, filepath.Join(b.Dir, fmt.Sprintf("work-broker-flood-%d-%d", run, i)), "", b.tlsConfig())
		if err != nil {
			return err
		}
		sample, err := b.flood(ctx, s.addr, kind)
		if err := errors.Join(err, s.stop()); err != nil {
			return fmt.Errorf("flood of %s: %w", kind, err)
		}
		b.board.Add(flood+kind, sample)
		b.Progress("run %d: flood of %s: %.1f ms, without %.1f ms (99 of 100), %v", run+1, kind, sample.Measured, sample.Baseline, sample.Detail)
	}
	return nil
}

func (b *bench) flood(ctx context.Context, addr, kind string) (report.Sample, error) {
	var configs [2]*tls.Config
	for i, who := range []struct{ name, unit string }{{source, "sources"}, {cluster(0), "agents"}} {
		var err error
		if configs[i], err = b.certs.client(who.name, who.unit); err != nil {
			return report.Sample{}, err
		}
	}
	hub, err := dial(ctx, addr, -1, configs[0])
	if err != nil {
		return report.Sample{}, err
	}
	defer func() { _ = hub.Close() }()
	agent, err := dial(ctx, addr, 0, configs[1])
	if err != nil {
		return report.Sample{}, err
	}
	defer func() { _ = agent.Close() }()
	probe, err := mqttflood.NewProbe(hub, agent, source, cluster(0))
	if err != nil {
		return report.Sample{}, err
	}
	if _, err := probe.Measure(ctx, b.Flood/5); err != nil { // warms up
		return report.Sample{}, err
	}
	without, err := probe.Measure(ctx, b.Flood)
	if err != nil {
		return report.Sample{}, err
	}
	attack, err := b.certs.attack(addr, kind)
	if err != nil {
		return report.Sample{}, err
	}
	attacker, err := mqttflood.Start(attack)
	if err != nil {
		return report.Sample{}, err
	}
	with, err := probe.Measure(ctx, b.Flood)
	sent, stopErr := attacker.Stop()
	if err := errors.Join(err, stopErr); err != nil {
		return report.Sample{}, err
	}
	sample := report.Sample{Measured: milliseconds(with, quantile), Baseline: milliseconds(without, quantile), Detail: map[string]any{
		"median": milliseconds(with, 0.5), "medianWithout": milliseconds(without, 0.5), "slowest": milliseconds(with, 1), "slowestWithout": milliseconds(without, 1),
		"sent": sent, "received": probe.Foreign(),
	}}
	return sample, nil
}

func milliseconds(took []time.Duration, q float64) float64 {
	return float64(mqttflood.Quantile(took, q).Microseconds()) / 1000
}

// attack is that of an agent with a certificate.
func (a *authority) attack(addr, kind string) (mqttflood.Attack, error) {
	attack := mqttflood.Attack{Kind: kind, Addr: addr, From: "127.0.1.2", Topic: "sources/" + source + "/clusters/" + cluster(1) + "/agentevents"}
	secure, err := a.client(cluster(1), "agents")
	if err != nil {
		return attack, err
	}
	if attack.CA, err = os.ReadFile(a.ca); err != nil {
		return attack, err
	}
	if attack.Key, err = os.ReadFile(a.serverKey); err != nil { // the key of all
		return attack, err
	}
	attack.Cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificates[0].Certificate[0]})
	return attack, nil
}
