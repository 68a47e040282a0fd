"""Diagnostics: what the verifier says about a program, each with a stable code."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: a stable code, where it stands, and one sentence with the offending values.

    ``code`` is a key of :data:`CODES`. ``op_index`` is the operator's position in its block's program order, None for a
    finding about the block or the program. ``tensors`` are the names of the tensors concerned.
    """

    code: str
    severity: Severity
    block: str
    op_index: int | None
    op_type: str | None
    tensors: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        place = f'block "{self.block}"'
        if self.op_index is not None:
            place += f", operator #{self.op_index} {self.op_type}"
        names = ", ".join(f'"{name}"' for name in self.tensors)
        return f"{self.severity}: {self.message}\n  {self.code} at {place}{f' ({names})' if names else ''}"


REPAIRABLE = frozenset(
    (
        *("WrongInputType", "WrongOutputType", "WrongAccumulatorType", "WrongBiasType", "NonConstantOperand"),
        *("NeedsNewerVersion", "MissingProfile", "MissingExtension", "LevelKernel", "LevelStride", "LevelScale"),
        *("LevelTensorSize", "LevelNesting", "LevelListSize", "LevelShapeLength"),
        *("InputZeroPointNotZero", "WeightZeroPointNotZero", "OutputZeroPointNotZero"),
        *("MulShiftInvalid", "TableLength", "TableSlope", "ScaleTrue", "ScaleNotTrue", "RescaleMultiplierNegative"),
        *("RescaleShiftOutOfRange", "ResultOverflow", "RescaleInputRange"),
    )
)
"""Codes of errors that a rule may repair; with any other, what the operators mean is in doubt, and no rule is asked."""

CODES: dict[str, str] = {
    # operands, results and their types
    "WrongInputList": "The number of operands differs from what the operator takes.",
    "WrongOutputList": "The number of results differs from what the operator gives.",
    "WrongInputType": "An operand's element type is not in the operator's table of types.",
    "WrongOutputType": "A result's element type is not in the operator's table of types.",
    "WrongInputShapeType": "A tensor stands where a shape value is needed, or the reverse.",
    "WrongOutputShapeType": "A shape operator's result is declared as a tensor.",
    "WrongAccumulatorType": "acc_type does not fit the operand types.",
    "WrongBiasType": "The bias has another element type than the result.",
    "NonConstantOperand": "An operand that must be a compile-time constant is computed.",
    "NeedsNewerVersion": "The operator or type combination was added after the file's TOSA version.",
    "UnknownEnumValue": "An attribute holds no value of its enumeration.",
    "AttributeLength": "An attribute has another number of entries than the operator needs.",
    "DraftFlagMissing": "The file says it is of a version that exists only as a draft, without the draft flag.",
    # target: profiles, extensions, level
    "MissingProfile": "The operator needs a profile that the target does not have.",
    "MissingExtension": "The operator or one of its types needs an extension that the target does not have.",
    "LevelKernel": "A kernel, window or pad is larger than the level allows.",
    "LevelStride": "A stride is larger than the level allows.",
    "LevelScale": "RESIZE enlarges more than the level allows.",
    "LevelTensorSize": "A tensor takes more bytes than the level allows.",
    "LevelNesting": "Control flow is nested deeper than the level allows.",
    "LevelListSize": "A list of tensors is longer than the level allows.",
    "LevelShapeLength": "A shape value is longer than the level allows.",
    # shapes
    "WrongRank": "A tensor's rank is outside the range the operator or the level allows.",
    "RankMismatch": "Ranks of operands and results disagree.",
    "DimensionMismatch": "A result's size differs from what the operands give.",
    "BroadcastShapesMismatch": "Operand shapes cannot be broadcast together.",
    "OperandShapeMismatch": "Two operands disagree on a size, or a constant operand has the wrong length.",
    "InvalidDimension": "A declared size is below -1.",
    # zero points
    "InputZeroPointNotZero": "A zero point is not 0 although the operand's type permits none.",
    "WeightZeroPointNotZero": "The weight's zero point is not 0 although its type is not INT8.",
    "OutputZeroPointNotZero": "The output zero point is not 0 although the result's type permits none.",
    "U16InputZeroPointNotValid": "The zero point of an unsigned 16-bit operand is neither 0 nor 32768.",
    "U16OutputZeroPointNotValid": "The zero point of an unsigned 16-bit result is neither 0 nor 32768.",
    # axes, reductions, argmax
    "AxisSmallerZero": "axis is negative.",
    "AxisLargerRank": "axis is not below the operand's rank.",
    "ArgmaxOutputRankMismatch": "The rank of an ARGMAX result is not the operand's rank minus one.",
    "ArgmaxOutputShapeMismatch": "An ARGMAX result is not the operand's shape without the axis.",
    "ShapeOfAxisNotOne": "A reduction's result keeps a size other than 1 on the reduced axis.",
    # windows: pooling and convolution
    "KernelSmallerOne": "A pooling window is smaller than 1.",
    "StrideSmallerOne": "A stride is smaller than 1.",
    "DilationSmallerOne": "A dilation is smaller than 1.",
    "PadSmallerZero": "A padding amount is negative.",
    "PadLargerEqualKernel": "A pad reaches the size of the window (or minus the kernel's, for out_pad).",
    "PoolingOutputShapeMismatch": "A pooling result's shape differs from the computed one.",
    "PoolingOutputShapeNonInteger": "The padded size minus the window is no multiple of the stride.",
    "ConvOutputShapeMismatch": "A convolution result's shape differs from the computed one.",
    "ConvOutputShapeNonInteger": "The padded size minus the dilated kernel is no multiple of the stride.",
    "ConvBiasShapeMismatch": "The bias has neither one value nor one for every output channel.",
    # FFT
    "KernelNotPowerOfTwo": "An FFT's height or width is no power of two.",
    "FFTInputShapeMismatch": "Real and imaginary operands of FFT2D differ in shape.",
    "FFTOutputShapeMismatch": "An FFT result's height or width differs from the required one.",
    # resize
    "MaxDimExceeded": "A height or width of RESIZE reaches 16384.",
    "ScaleSmallerEqualZero": "A RESIZE scale term is not positive.",
    "ScaleNLargerMax": "A RESIZE scale numerator exceeds 2048.",
    "ScaleDLargerMax": "A RESIZE scale denominator is 16 times the numerator or more.",
    "OffsetSmallerMin": "A RESIZE offset is below minus the numerator.",
    "OffsetLargerEqualMax": "A RESIZE offset is 16 times the numerator or more.",
    "BorderSmallerMin": "A RESIZE border is below minus 16 times the numerator.",
    "BorderLargerEqualMax": "A RESIZE border reaches the numerator.",
    "ResizeOutputShapeMismatch": "A RESIZE result's height or width differs from the computed one.",
    "ResizeOutputShapeNonInteger": "The RESIZE size formula does not divide exactly.",
    "BatchMismatch": "The result's batch size differs from the operand's.",
    "ChannelMismatch": "The result's channel count differs from the operand's.",
    # data layout
    "ConcatNoInputList": "A concatenation without any operand.",
    "ConcatInputRankMismatch": "CONCAT operands differ in rank.",
    "ConcatInputDimMismatch": "CONCAT operands differ on an axis other than the joined one.",
    "ConcatShapeSumMismatch": "The result's extent on the axis is not the sum of the operands' extents.",
    "PadOutputShapeMismatch": "A PAD result is not the operand plus both pads on every axis.",
    "TensorSizeInputOutputMismatch": "A reshape changes the number of elements.",
    "ReshapeNewShapeOutputMismatch": "The new shape differs from the result's declared shape.",
    "StartSmallerZero": "A slice starts below 0.",
    "SizeSmallerEqualZero": "A slice size is not positive.",
    "StartSizeOutsideBounds": "A slice passes the end of an axis.",
    "SizeOutputShapeMismatch": "Slice sizes differ from the result's shape.",
    "InputSizeStartLengthMismatch": "start or size has another length than the operand's rank.",
    "TileMultiplesOutputShapeMismatch": "A TILE result is not the operand's shape times multiples.",
    "IndexOutsideBounds": "A TRANSPOSE permutation entry is outside the rank.",
    "IndexUsedTwice": "A TRANSPOSE permutation repeats an axis.",
    "TransposePermsOutputShapeMismatch": "A TRANSPOSE result is not the permuted shape.",
    "GatherIndexOutOfRange": "A constant index of a gather or scatter is outside the indexed axis.",
    "ScatterIndexRepeated": "Constant SCATTER indices name a row twice.",
    # elementwise
    "MaxSmallerMin": "CLAMP max_val is below min_val.",
    "ClampBoundInvalid": "A CLAMP bound is NaN or has too few bytes for the element type.",
    "InputRank1WrongRank": "The shift of MUL is not a tensor of rank 1 with one element.",
    "MulShiftInvalid": "The shift of MUL is outside 0..63, or not 0 although the operands are not INT32.",
    "ShiftAmountInvalid": "A constant shift amount reaches the operand's width or is negative.",
    "DivisionByZero": "INTDIV by a constant that holds 0.",
    "TableLength": "TABLE has 256 entries for INT8 and 513 for INT16.",
    "TableSlope": "Neighbouring entries of an INT16 table, which the operand can reach, differ too much.",
    # RESCALE
    "ScaleTrue": "RESCALE of INT48 with scale32.",
    "ScaleNotTrue": "RESCALE with DOUBLE_ROUND needs scale32.",
    "RescaleMultiplierNegative": "A RESCALE multiplier is negative.",
    "RescaleShiftOutOfRange": "A RESCALE shift is outside 2..62.",
    "RescalePerChannelRank0": "RESCALE per_channel of a tensor of rank 0.",
    "RescaleInputUnsignedOutputUnsigned": "RESCALE with both unsigned flags.",
    "RescaleI32OutputInputUnsigned": "RESCALE to INT32 from an unsigned operand.",
    "RescaleI32InputOutputUnsigned": "RESCALE from INT32 to an unsigned result.",
    "RescaleI48InputOutputUnsigned": "RESCALE from INT48 to an unsigned result.",
    "RescaleI32InputUnsigned": "RESCALE marks an INT32 operand unsigned.",
    "RescaleI32OutputUnsigned": "RESCALE marks an INT32 result unsigned.",
    "RescaleI48InputUnsigned": "RESCALE marks an INT48 operand unsigned.",
    # what values can be, by interval analysis
    "ResultOverflow": "A sum or product can leave the range of the result's type (an error where it always does).",
    "RescaleInputRange": "The operand of a RESCALE with scale32 can exceed what its shift allows.",
    "RescaleResultRange": "The scaled value of a RESCALE without scale32 can leave INT32.",
    # shape operators
    "InputShapeRankMismatch": "Two shape operands differ in length.",
    "OutputShapeRankMismatch": "The resulting shape has another length than the operands give.",
    "ConcatShapeRankZeroInput": "CONCAT_SHAPE of a shape of length 0.",
    "AssertShapesNotEqual": "ASSERT_EQUAL_SHAPE of constants that differ.",
    # block-scaled operators
    "WrongBlockSizeDimension": "The last size of a block-scaled tensor is no multiple of the block size.",
    "WrongScaledBlockShapeDimension": "The rows of a tensor that carries its own scales are no whole blocks.",
    "UnknownBlockSizeEnum": "block_size holds no value of its enumeration.",
    "InputDimensionMismatch": "Values and scales disagree on a size.",
    "MatmulTBlockScaledBroadcastShapeMismatch": "The batch of B is neither 1 nor that of A.",
    # control flow
    "UnknownRegion": "A control flow operator names a region the file does not have.",
    "RecursiveRegion": "A region runs itself through control flow.",
    "CondIfCondNotMatchingBool": "The condition of COND_IF is not BOOL.",
    "CondIfCondShapeNotSizeOne": "The condition of COND_IF does not hold exactly one element.",
    "CondIfInputListThenGraphMismatch": "COND_IF operands do not match the inputs of the then region.",
    "CondIfInputListElseGraphMismatch": "COND_IF operands do not match the inputs of the else region.",
    "CondIfOutputListThenGraphMismatch": "COND_IF results do not match the outputs of the then region.",
    "CondIfOutputListElseGraphMismatch": "COND_IF results do not match the outputs of the else region.",
    "InputListOutputListMismatch": "WHILE_LOOP operands and results differ.",
    "InputListCondGraphMismatch": "WHILE_LOOP operands do not match the inputs of the condition region.",
    "InputListBodyGraphInputMismatch": "WHILE_LOOP operands do not match the inputs of the body region.",
    "InputListBodyGraphOutputMismatch": "WHILE_LOOP operands do not match the outputs of the body region.",
    "CondGraphOutputNotMatchingBool": "The condition region of WHILE_LOOP gives no BOOL.",
    "CondGraphOutputShapeNotSizeOne": "The condition region of WHILE_LOOP does not give exactly one element.",
    # files that cannot be loaded, or not as they are
    "UnreadableFile": "The file cannot be opened.",
    "InvalidFile": "The file is no TOSA flatbuffer of a known version, or is truncated or corrupt.",
    "DuplicateTensor": "Two tensors, or two shapes, of a block have one name.",
    "NameClash": "A tensor and a shape of a block have one name.",
    "DuplicateProducer": "A tensor is the result of two operators, or an input of the block as well.",
    "OperatorOrder": "An operator stands before the one that gives its operand.",
    # graph structure
    "EmptyProgram": "The file has no region with a block.",
    "DuplicateRegion": "Two regions have the same name.",
    "RegionBlockCount": "A region does not have exactly one block.",
    "NoOutputs": "A block gives nothing: it has no outputs and no operator with an effect.",
    "Cycle": "Operators of a block depend on each other in a cycle.",
    "UndeclaredTensor": "A name that no table of the block declares.",
    "UnknownDType": "A tensor is declared without an element type.",
    "NoProducer": "A tensor is read that nothing produces.",
    "UnusedTensor": "A tensor is declared that nothing produces or reads.",
    "ShapeAtBoundary": "A shape value is an input or output of a block.",
    "UnknownOperator": "An operator that the specification does not define, or with foreign attributes.",
    "VariableAsIdentity": "A variable is read or written by IDENTITY with another operator's attributes.",
    # constants and variables
    "ConstantWithoutData": "A constant has no data.",
    "ConstantDataTooShort": "A constant has fewer bytes than its type and shape need.",
    "ConstantDataTooLong": "A constant has more bytes than its type and shape need and padding explains.",
    "ConstantShapeUnknown": "A constant has an unknown size or no rank.",
    "NotAVariable": "A variable operator reads or writes a tensor that is no variable.",
    "VariableUse": "An operator that is no variable operator reads or writes a variable.",
    "VariableTypeMismatch": "What is read from or written to a variable differs from it in type or shape.",
    "VariableName": "A variable has no name, or the name of another one with a different type.",
}
"""Every code a diagnostic can carry, and what it says; kinds of the specification's ERROR_IF keep their names."""
