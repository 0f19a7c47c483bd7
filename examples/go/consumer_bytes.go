// What members tell each other, in either form: JSON, as this member does, or {"base64": "…"} with the bytes that Kafka's
// consumers write. They are Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3: the
// version, then the fields, big-endian. Of a later version what begins as 3 does is read.

package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Subscription is what a consumer tells the leader. What it did not say is nil, its generation -1.
type Subscription struct {
	Topics          []string        `json:"topics"`
	UserData        json.RawMessage `json:"user_data"`
	OwnedPartitions Partitions      `json:"owned_partitions"`
	GenerationID    int             `json:"generation_id"`
	RackID          *string         `json:"rack_id"`
}

// readSubscription gives a member's metadata.
func readSubscription(metadata json.RawMessage) (Subscription, error) {
	told := Subscription{GenerationID: -1}
	data, speaksBytes := bytesOf(metadata)
	if !speaksBytes {
		err := json.Unmarshal(metadata, &told)
		if err == nil && told.Topics == nil {
			err = errors.New("it names no topics")
		}
		return told, err
	}
	f := readVersion(data)
	f.array(func() { told.Topics = append(told.Topics, f.text(f.int16())) })
	told.UserData = f.userData()
	if f.version >= 1 {
		told.OwnedPartitions = f.partitions()
	}
	if f.version >= 2 {
		told.GenerationID = f.int32()
	}
	if f.version >= 3 {
		if length := f.int16(); length >= 0 {
			rack := f.text(length)
			told.RackID = &rack
		}
	}
	return told, f.err
}

// readAssignment gives what the leader gave; null, or no bytes, is nothing.
func readAssignment(assignment json.RawMessage) (Partitions, error) {
	data, speaksBytes := bytesOf(assignment)
	if !speaksBytes {
		var given struct {
			Partitions Partitions `json:"partitions"`
		}
		err := json.Unmarshal(assignment, &given)
		if given.Partitions == nil {
			given.Partitions = Partitions{}
		}
		return given.Partitions, err
	}
	if len(data) == 0 {
		return Partitions{}, nil
	}
	f := readVersion(data)
	return f.partitions(), f.err
}

// writeAssignment gives the assignment of the member with this metadata, in the form that it speaks.
func writeAssignment(metadata json.RawMessage, partitions Partitions) map[string]any {
	if _, speaksBytes := bytesOf(metadata); !speaksBytes {
		return map[string]any{"partitions": partitions}
	}
	int16, int32 := binary.BigEndian.AppendUint16, binary.BigEndian.AppendUint32
	data := int32(int16(nil, 0), uint32(len(partitions))) // version 0, which every client reads
	for topic, numbers := range partitions {
		data = append(int16(data, uint16(len(topic))), topic...)
		data = int32(data, uint32(len(numbers)))
		for _, number := range numbers {
			data = int32(data, uint32(number))
		}
	}
	return map[string]any{"base64": int32(data, 1<<32-1)} // no user data
}

// bytesOf gives the bytes that a value stands for, if base64 is its only key.
func bytesOf(value json.RawMessage) (data []byte, speaksBytes bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil || len(object) != 1 || object["base64"] == nil {
		return nil, false
	}
	return data, json.Unmarshal(object["base64"], &data) == nil
}

// fields are read one after the other.
type fields struct {
	version int
	rest    []byte
	err     error // the first one; what is read after it is empty
}

func readVersion(data []byte) *fields {
	f := &fields{rest: data}
	f.version = f.int16()
	f.check(f.version >= 0, "version %d", f.version)
	return f
}

func (f *fields) check(holds bool, format string, words ...any) {
	if f.err == nil && !holds {
		f.err = fmt.Errorf(format, words...)
	}
}

func (f *fields) take(count int) []byte {
	f.check(count >= 0 && count <= len(f.rest), "%d bytes wanted, %d left", count, len(f.rest))
	if f.err != nil {
		return nil
	}
	taken := f.rest[:count]
	f.rest = f.rest[count:]
	return taken
}

func (f *fields) int16() int {
	if taken := f.take(2); f.err == nil {
		return int(int16(binary.BigEndian.Uint16(taken)))
	}
	return -1
}

func (f *fields) int32() int {
	if taken := f.take(4); f.err == nil {
		return int(int32(binary.BigEndian.Uint32(taken)))
	}
	return -1
}

func (f *fields) text(length int) string {
	text := f.take(length)
	f.check(utf8.Valid(text), "%q is not UTF-8", text)
	return string(text)
}

func (f *fields) userData() json.RawMessage {
	length := f.int32()
	if length < 0 {
		return nil
	}
	value, _ := json.Marshal(map[string][]byte{"base64": f.take(length)})
	return value
}

func (f *fields) array(element func()) {
	count := f.int32()
	f.check(count >= 0, "%d elements", count)
	for i := 0; i < count && f.err == nil; i++ {
		element()
	}
}

func (f *fields) partitions() Partitions {
	found := Partitions{}
	f.array(func() {
		topic := f.text(f.int16())
		numbers := append([]int{}, found[topic]...) // a topic may be named twice
		f.array(func() { numbers = append(numbers, f.int32()) })
		found[topic] = numbers
	})
	return found
}
