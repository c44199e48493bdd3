r"""The rules of a fable, except for its storylines (see `storylines`). Read `notation` first, then from `fable` on.

A fable introduces its hero, then follows one of nine storylines. The options of a rule must begin differently: a common
beginning moves up into the rule that uses them.
"""

STORY = r"""
fable
    1 [introduction] [habit] [tale]

# ------------------------------------------------------------------ the hero

introduction
    5 [Long ago], [somewhere], there lived [a look] [but] [trait:trait] [hero:animal] [named]
        [hero:hero name].
    3 [Somewhere] lived [a look] [but] [trait:trait] [hero:animal] [named] [hero:hero name].
    2 There was once [a look] [but] [trait:trait] [hero:animal] [named] [hero:hero name], who lived
        [somewhere].
    2 This is the story of [hero:hero name], [a look] [but] [trait:trait] [hero:animal] who lived [somewhere].
    2 The old people [still tell] of [a look] [but] [trait:trait] [hero:animal] [named] [hero:hero name].

but
    4 and
    2 but
    1 yet

named
    3 named
    2 called

still tell
    3 still tell
    2 like to tell

long ago
    5 once upon a time
    4 long ago
    2 many years ago
    2 in the old days

somewhere
    5 in a [green] valley
    4 at the edge of a [dark] wood
    3 by the [dark] sea
    3 by a [slow] river
    2 below a [high] hill
    2 on a farm [far away]
    2 near a [small] village

green
    4 green
    3 quiet
    2 hidden
    2 sunny

dark
    4 dark
    3 deep
    2 wild

slow
    3 slow
    3 wide
    2 clear

small
    3 small
    2 pretty
    2 quiet

high
    3 high
    2 snowy

far away
    3 among the fields
    2 far from town

habit
    4 {Hero.he} lived {hero.home} with a [little] [treasure] and a [little] [treasure].
    3 {Hero.he} would have given a [little] [treasure] for {hero.food}.
    3 [Every] {hero.he} {hero.gait} out with a [little] [treasure] to look for {hero.food}.
    3 Everyone knew {hero.him} for {hero.talent} and for {hero.his} [little] [treasure].
    2 No one was better at {hero.talent} or had such a [little] [treasure].
    2 No one minded that {hero.he} was so {trait}, for all admired {hero.his} {hero.pride}.

every
    5 every morning
    4 every evening
    2 each day

known
    4 known far and wide
    3 famous
    2 praised by all

# ------------------------------------------------------------------ things, all over the story

little
    3 little
    3 red
    3 blue
    3 green
    3 new
    2 yellow
    2 white
    2 black
    2 brown
    2 golden
    2 painted
    2 grey
    2 pretty

presents
    4 a [little] [treasure]
    3 [few] [ripe] [fruits]

few
    4 two
    4 three
    3 four
    3 five
    2 six
    2 seven
    2 eight
    1 nine
    1 ten

ripe
    4 fine
    3 sweet
    3 big
    3 fresh
    2 golden
    2 small
    2 lovely
    2 soft
    1 round
    1 red

# ------------------------------------------------------------------ the tale begins

tale
    5 [When], {hero} [storyline]
    2 It happened [when] that {hero} [storyline]
    1 Then, [when], {hero} [storyline]

when
    5 one [cold] [morning]
    5 on a [cold] [morning] when the [larks] [sang]
    3 [soon] after sunrise
    3 [few] days after [the fair]
    2 on the [longest] day of the year

cold
    4 cold
    4 fine
    3 windy
    3 misty
    3 bright
    2 grey
    2 rainy
    2 warm
    1 stormy
    1 quiet

morning
    5 morning
    4 evening
    3 afternoon
    2 day
    1 night

larks
    3 larks
    2 bells
    2 crickets
    2 children
    2 birds

sang
    4 sang
    3 slept
    2 danced

soon
    2 soon
    2 just
    1 not long

the fair
    3 the fair
    2 the harvest
    2 the great storm

longest
    2 longest
    2 shortest

# ------------------------------------------------------------------ meeting another animal

visitor
    5 [Just then] [newcomer]
    2 [Along] came [other:other name], [a manner] [but] [trait] [other:animal!hero.kind] with [presents].
    2 Soon [a manner] [other:animal!hero.kind] named [other:other name] [came by].
    1 Who should come [along the path] but [other:other name] the [other:animal!hero.kind]?

newcomer
    5 [a manner] [but] [trait] [other:animal!hero.kind] named [other:other name] [came by].
    2 the bushes moved, and out [stepped] [other:other name], [a manner] [but] [trait]
        [other:animal!hero.kind].
    2 {hero} heard [steps]. It was [other:other name] the [other:animal!hero.kind] with [presents].

neighbour
    3 [a manner] [but] [trait] [other:animal!hero.kind] named [other:other name]
    1 old [other:other name] the [other:animal!hero.kind]

just then
    5 just then
    4 before long
    3 a moment later
    2 by and by
    2 at that moment

along
    3 along the path
    2 over the hill

along the path
    3 along the path
    2 down the hill

came by
    5 {other.gait} by with [presents]
    3 came by
    2 stopped to look
    2 looked over the hedge
    2 sat down close to {hero.him}

stepped
    3 stepped
    2 came

steps
    3 steps
    2 a voice

# ------------------------------------------------------------------ talking

said hero
    6 said {hero} [softly]
    3 {hero.call} {hero} [softly]
    3 {hero} said
    1 cried {hero}

said other
    6 said {other} [softly]
    3 {other.call} {other} [softly]
    3 {other} said
    1 cried {other}

shouted hero
    4 cried {hero} [angrily]
    3 {hero.call} {hero} [angrily]
    2 shouted {hero}

shouted other
    4 cried {other} [angrily]
    3 {other.call} {other} [angrily]
    2 shouted {other}

asked hero
    4 asked {hero} [softly]
    3 {hero.call} {hero}
    2 {hero} asked

asked other
    4 asked {other} [softly]
    3 {other.call} {other}
    2 {other} asked

angrily
    4 angrily
    3 loudly
    3 quickly
    2 at once
    2 crossly

softly
    4 softly
    3 quietly
    3 loudly
    3 slowly
    3 quickly
    3 calmly
    2 gently
    2 with a smile
    2 with a sigh
    2 at once
    2 after a while

# ------------------------------------------------------------------ how it ends

later
    5 that winter
    4 a year later
    3 not long after
    3 the next spring
    2 many weeks later

ever after
    5 from that day on
    4 ever after
    3 since then
    1 after that

friends
    2 [Ever after] {hero} and {other} were [the best of] friends.
    4 {Hero} gave {other} [presents] and got [presents].
    1 So the {hero.kind} and the {other.kind} became [the best of] friends.
    3 They [ate] [presents of food] that evening and [laughed] until [midnight].

the best of
    4 the best of
    2 good
    2 true

ate
    3 ate
    2 shared

presents of food
    1 [few] [ripe] [fruits]

laughed
    3 laughed
    2 talked
    2 sang
    1 danced

midnight
    4 midnight
    2 morning

lesson
    3 {Hero} {hero.gait} home [sadly] and [could not sleep] that night.
    2 {Hero} never [forgot it].
    2 [Ever after] {hero} was a [wiser] {hero.kind}.
    2 It was a [sad] {hero.kind} that {hero.gait} home [sadly].

forgot it
    3 forgot it
    2 spoke of it

sadly
    3 slowly
    2 without a word
    2 alone

could not sleep
    3 could not sleep
    2 ate nothing

wiser
    4 wiser
    2 sadder

sad
    3 sad
    2 quiet
"""
