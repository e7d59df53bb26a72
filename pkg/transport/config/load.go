package config

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/wire"
)

// Load reads the file at path. The error names every fault at once, each by its
// key and with what to do; a key that is not known is a fault. Files that the
// configuration names are read as well, and must make sense; paths are relative
// to the working directory.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("transport configuration: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("transport configuration %s:\n%w", path, err)
	}
	return c, nil
}

// Parse is [Load] for the content of a file.
func Parse(data []byte) (Config, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Config{}, fmt.Errorf("is no YAML: %w", err)
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(asJSON, &values); err != nil {
		return Config{}, errors.New(`is no mapping of keys to values, such as "brokerHost: broker.example.com:1883"`)
	}
	var c Config
	fields := c.fields()
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		set, known := fields[key]
		if !known {
			faults = append(faults, unknownKey("", key, slices.Sorted(maps.Keys(fields))))
			continue
		}
		if string(values[key]) == "null" {
			continue // a key without a value is as if it were absent
		}
		if err := set(values[key]); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", key, err))
		}
	}
	faults = append(faults, c.Validate(), c.Topics.Validate())
	if err := errors.Join(faults...); err != nil {
		return Config{}, err
	}
	return c, nil
}

// unknownKey is the fault of a key that is not among known.
func unknownKey(within, key string, known []string) error {
	for _, k := range known {
		if strings.EqualFold(k, key) {
			return fmt.Errorf("%s%s: unknown key: did you mean %s%s?", within, key, within, k)
		}
	}
	return fmt.Errorf("%s%s: unknown key: remove it; known are %s", within, key, strings.Join(known, ", "))
}

// fields tells for each key how to read its value into c.
func (c *Config) fields() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"brokerHost":        text(&c.BrokerHost),
		"username":          text(&c.Username),
		"password":          text(&c.Password),
		"passwordFile":      text(&c.PasswordFile),
		"keepAlive":         seconds(&c.KeepAlive),
		"dialTimeout":       duration(&c.DialTimeout),
		"pubQoS":            qos(&c.PubQoS),
		"subQoS":            qos(&c.SubQoS),
		"topics":            topics(&c.Topics),
		"caFile":            text(&c.CA.File),
		"caData":            encoded(&c.CA.Data),
		"clientCertFile":    text(&c.ClientCert.File),
		"clientCertData":    encoded(&c.ClientCert.Data),
		"clientKeyFile":     text(&c.ClientKey.File),
		"clientKeyData":     encoded(&c.ClientKey.Data),
		"sessionExpiry":     duration(&c.SessionExpiry),
		"receiveMaximum":    number(&c.ReceiveMaximum, 1),
		"maximumPacketSize": number(&c.MaximumPacketSize, 1024),
	}
}

func text(to *string) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if err := json.Unmarshal(raw, to); err != nil {
			return errors.New("is no text: put it in quotes")
		}
		return nil
	}
}

func number[T uint16 | uint32 | byte](to *T, least T) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if err := json.Unmarshal(raw, to); err != nil || *to < least {
			*to = 0
			return fmt.Errorf("is no whole number from %d to %d", least, ^T(0))
		}
		return nil
	}
}

func qos(to **byte) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var value byte
		if err := json.Unmarshal(raw, &value); err != nil || value > 2 {
			return errors.New("is no quality of service: use 0, 1 or 2")
		}
		*to = &value
		return nil
	}
}

func seconds(to *time.Duration) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var value uint16
		if err := number(&value, 1)(raw); err != nil {
			return fmt.Errorf("%w: it counts seconds", err)
		}
		*to = time.Duration(value) * time.Second
		return nil
	}
}

func duration(to *time.Duration) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return errors.New(`is no duration: give a number with its unit, such as "60s" or "24h"`)
		}
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return fmt.Errorf(`%q is no duration above zero: give a number with its unit, such as "60s" or "24h"`, value)
		}
		*to = d
		return nil
	}
}

// encoded reads base64 text. It must not repeat the value, which may be a key.
func encoded(to *[]byte) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return errors.New("is no text: give PEM encoded in base64")
		}
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(value), ""))
		if err != nil {
			return errors.New("is no base64: give PEM encoded in base64, as `base64 -w0 FILE` prints it")
		}
		if len(bytes.TrimSpace(data)) == 0 {
			return errors.New("is empty: give PEM encoded in base64, or remove the key")
		}
		*to = data
		return nil
	}
}

func topics(to *wire.Topics) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var values map[string]json.RawMessage
		if err := json.Unmarshal(raw, &values); err != nil {
			return errors.New("is no mapping of sourceEvents, agentEvents, sourceBroadcast and agentBroadcast to topic patterns")
		}
		fields := map[string]func(json.RawMessage) error{
			"sourceEvents":    text(&to.SourceEvents),
			"agentEvents":     text(&to.AgentEvents),
			"sourceBroadcast": text(&to.SourceBroadcast),
			"agentBroadcast":  text(&to.AgentBroadcast),
		}
		var faults []error
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if set, known := fields[key]; !known {
				faults = append(faults, unknownKey("topics.", key, slices.Sorted(maps.Keys(fields))))
			} else if err := set(values[key]); err != nil {
				faults = append(faults, fmt.Errorf("topics.%s %w", key, err))
			}
		}
		return errors.Join(faults...)
	}
}
