package packet

import "github.com/workwire/workwire/broker/session"

// MaxUserProperties limits the user properties of one packet. A CloudEvent of the protocol has
// about a dozen.
const MaxUserProperties = 64

// Property identifiers.
const (
	propPayloadFormat      = 1
	propMessageExpiry      = 2
	propContentType        = 3
	propResponseTopic      = 8
	propCorrelationData    = 9
	propSubscriptionID     = 11
	propSessionExpiry      = 17
	propAssignedClientID   = 18
	propAuthMethod         = 21
	propAuthData           = 22
	propRequestProblemInfo = 23
	propWillDelay          = 24
	propRequestResponse    = 25
	propServerReference    = 28
	propReasonString       = 31
	propReceiveMaximum     = 33
	propTopicAliasMaximum  = 34
	propTopicAlias         = 35
	propMaximumQoS         = 36
	propRetainAvailable    = 37
	propUser               = 38
	propMaximumPacketSize  = 39
	propSubIDsAvailable    = 41
)

// propertySet is a set of property identifiers, which are at most 42.
type propertySet uint64

func setOf(ids ...byte) (s propertySet) {
	for _, id := range ids {
		s |= 1 << id
	}
	return s
}

func (s propertySet) has(id byte) bool { return id < 64 && s&(1<<id) != 0 }

// The properties that each packet of a client may have.
var (
	connectProperties = setOf(propSessionExpiry, propReceiveMaximum, propMaximumPacketSize, propTopicAliasMaximum,
		propRequestResponse, propRequestProblemInfo, propUser, propAuthMethod, propAuthData)
	willProperties = setOf(propWillDelay, propPayloadFormat, propMessageExpiry, propContentType, propResponseTopic,
		propCorrelationData, propUser)
	publishProperties = setOf(propPayloadFormat, propMessageExpiry, propTopicAlias, propResponseTopic, propCorrelationData,
		propUser, propContentType, propSubscriptionID)
	pubackProperties      = setOf(propReasonString, propUser)
	subscribeProperties   = setOf(propSubscriptionID, propUser)
	unsubscribeProperties = setOf(propUser)
	disconnectProperties  = setOf(propSessionExpiry, propReasonString, propUser)
)

// properties are the properties of one packet.
type properties struct {
	set     propertySet // those that are present
	number  [propMaximumPacketSize + 1]uint32
	message session.Message // the properties that are forwarded
}

// properties reads the length of properties and as many bytes of them, of which each must be in
// allowed and present once.
func (c *cursor) properties(allowed propertySet) properties {
	n := c.varint()
	var p properties
	inner := cursor{s: c.next(n), err: c.err}
	for inner.s != "" {
		inner.property(&p, allowed)
	}
	if inner.err != nil {
		c.fail(inner.err)
	}
	return p
}

func (c *cursor) property(p *properties, allowed propertySet) {
	id := c.byte()
	switch {
	case !allowed.has(id):
		c.fail(malformed("a property that the packet may not have"))
		return
	case id == propUser:
		c.userProperty(p)
		return
	case p.set.has(id):
		c.fail(violation("a property that is present twice"))
		return
	}
	p.set |= 1 << id
	switch id {
	case propPayloadFormat, propRequestProblemInfo, propRequestResponse:
		p.number[id] = uint32(c.byte())
		if p.number[id] > 1 {
			c.fail(violation("a property has a value other than 0 and 1"))
		}
	case propReceiveMaximum, propTopicAliasMaximum, propTopicAlias:
		p.number[id] = uint32(c.uint16())
	case propMessageExpiry, propSessionExpiry, propWillDelay, propMaximumPacketSize:
		p.number[id] = c.uint32()
	case propSubscriptionID:
		p.number[id] = uint32(c.varint())
	case propContentType:
		p.message.ContentType = c.text()
	case propResponseTopic:
		p.message.ResponseTopic = c.text()
		if c.err == nil && !validName(p.message.ResponseTopic) {
			c.fail(violation("the response topic is empty or has a wildcard"))
		}
	case propCorrelationData:
		p.message.CorrelationData = []byte(c.binary())
	case propAuthMethod, propReasonString:
		c.text()
	case propAuthData:
		c.binary()
	}
	p.checkZero(c, id)
}

// messageExpiry returns the message expiry interval in seconds, or nil if there is none.
func (p *properties) messageExpiry() *uint32 {
	if !p.set.has(propMessageExpiry) {
		return nil
	}
	seconds := p.number[propMessageExpiry]
	return &seconds
}

// checkZero checks the properties that must not be 0.
func (p *properties) checkZero(c *cursor, id byte) {
	if p.number[id] != 0 {
		return
	}
	switch id {
	case propReceiveMaximum, propSubscriptionID, propMaximumPacketSize:
		c.fail(violation("a property has the value 0"))
	}
}

func (c *cursor) userProperty(p *properties) {
	if len(p.message.User) == MaxUserProperties {
		c.fail(&Error{Code: QuotaExceeded, Text: "more than 64 user properties"})
		return
	}
	key := c.text()
	p.message.User = append(p.message.User, session.Property{Key: key, Value: c.text()})
}
